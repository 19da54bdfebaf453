#!/usr/bin/env python3
"""How often LLM answers agree with the truth: eight tasks, without examples and with examples in three orders.

    bench_answers.py [--kvasir PROGRAM] [--data DIR] [--rows N] [TASK …]
    bench_answers.py --struct [--kvasir PROGRAM] [--data DIR] [--rows N]

Each line is a task and an order of examples. Figures are accuracy / balanced accuracy (the mean over classes):

    off      the likeliest answer
    default  default settings: p(answer) / prior, the prior a mean over a sample of the inputs (Zhou et al.,
             arXiv 2309.17249); a column of stars is an INTEGER and is not calibrated
    log      the same with the geometric mean, computed here over all rows
    free     priors from the inputs 'N/A', '[MASK]' and '' (Zhao et al., arXiv 2102.09690), computed here

--struct compares two questions about reviews that have a rating of five stars, by two calls and by the two fields of one
STRUCT, without examples and with one for each rating: accuracy / balanced accuracy under default settings, and the
computed tokens.

'low' counts orders of examples that fall more than five points below always giving the commonest class. DIR has
rt.reviews.tsv.gz and rt.movie_info.tsv.gz (default ../shared/data); the tasks that need them are skipped without it.
"""
import argparse, json, math, os, random, subprocess, tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OWN = os.path.join(SOURCE, 'tutorials', 'data')
MOODS = ['positive', 'negative']
CONTENT_FREE = ['N/A', '[MASK]', '']


def tasks(data):
    """name: (query of x, truth and id; field; answers; prompt)"""
    review = 'Is {review} positive or negative?'
    fresh = f"SELECT review AS x, CASE WHEN fresh = 'fresh' THEN 'positive' ELSE 'negative' END AS truth, id " \
            f"FROM '{data}/rt.reviews.tsv.gz' WHERE length(review) > 20 AND "
    out = {
        'reviews': (f"SELECT review AS x, CASE WHEN stars > 3 THEN 'positive' ELSE 'negative' END AS truth, id "
                    f"FROM '{OWN}/reviews.csv' WHERE stars <> 3", 'review', MOODS, review),
        'notes': (f"SELECT note AS x, CASE WHEN stars > 3 THEN 'satisfied' ELSE 'unsatisfied' END AS truth, id "
                  f"FROM '{OWN}/products_notes.csv' WHERE stars <> 3", 'note', ['satisfied', 'unsatisfied'],
                  'Is the customer who wrote {note} satisfied?'),
        'category': (f"SELECT description AS x, category AS truth, id FROM '{OWN}/products.csv'", 'description',
                     ['Kitchen', 'Light', 'Desk', 'Outdoor', 'Toys', 'Clothes', 'Garden'],
                     'Which category does the product in {description} belong to?'),
        'stars': (f"SELECT review AS x, CAST(stars AS TEXT) AS truth, id FROM '{OWN}/reviews.csv'", 'review',
                  list('12345'), 'How many stars does the critic of {review} give, from 1 (bad) to 5 (good)?'),
        'rt': (fresh + 'id % 160 = 3', 'review', MOODS, review),
        'boolean': (f"SELECT x, CAST(truth = 'positive' AS TEXT) AS truth, id FROM ({fresh} id % 160 = 3) AS rt",
                    'review', ['true', 'false'], 'Is {review} positive?'),
        'rt80': (fresh + "(fresh = 'rotten' AND id % 90 = 5 OR fresh = 'fresh' AND id % 565 = 7)", 'review', MOODS, review),
        'genre': (f"SELECT synopsis AS x, genre AS truth, id FROM '{data}/rt.movie_info.tsv.gz' WHERE genre IN ('Drama', "
                  f"'Comedy', 'Horror', 'Documentary', 'Action and Adventure') AND length(synopsis) > 50 AND id % 2 = 0",
                  'synopsis', ['Drama', 'Comedy', 'Horror', 'Documentary', 'Action and Adventure'],
                  'What is the genre of the film in {synopsis}?'),
    }
    return {name: task for name, task in out.items() if data not in task[0] or os.path.isdir(data)}


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


class Kvasir:
    def __init__(self, program, database):
        self.command = [program, database, '--json']

    def __call__(self, *statements):
        """The rows of the last statement."""
        run = subprocess.run(self.command + [a for s in statements for a in ('-c', s)], capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(run.stderr)
        decoder, text, rows = json.JSONDecoder(), run.stdout.strip(), []
        while text:
            rows, end = decoder.raw_decode(text)
            text = text[end:].lstrip()
        return rows


def divided(rows, sample, geometric=False):
    """The rows' probabilities divided by the mean of the sample's."""
    into, back = (lambda x: math.log(max(x, 1e-9)), math.exp) if geometric else (float, float)
    prior = [max(back(sum(into(p[k]) for p in sample) / len(sample)), 1e-9) for k in range(len(sample[0]))]
    return [[a / b for a, b in zip(p, prior)] for p in rows]


def score(answers, truth, labels):
    right = [a == t for a, t in zip(answers, truth)]
    classes = [[r for r, t in zip(right, truth) if t == label] for label in labels]
    return sum(right) / len(right), sum(sum(c) / len(c) for c in classes if c) / sum(1 for c in classes if c)


def examine(kvasir, task, limit):
    """Yields, for no examples and three orders of them: name, share of the commonest class, scores."""
    query, field, labels, prompt = task
    data = kvasir(f'SELECT * FROM ({query}) ORDER BY id, x')
    random.Random(7).shuffle(data)
    examples, per = [], 2 if len(labels) == 2 else 1
    for label in labels:
        short = sorted((d for d in data if d['truth'] == label), key=lambda d: len(d['x']) > 220)
        examples += short[:per]
    rows = [d for d in data if d not in examples][:limit]
    truth = [d['truth'] for d in rows]
    common = max(truth.count(label) for label in labels) / len(rows)
    values = ', '.join(f"({i}, {quoted(x)})" for i, x in enumerate([d['x'] for d in rows] + CONTENT_FREE))
    kvasir('DROP TABLE IF EXISTS v', f'CREATE TABLE v AS SELECT * FROM (VALUES {values}) AS v(i, {field})')
    orders = {'none': [], 'by class': examples, 'reversed': examples[::-1], 'mixed': examples[::2] + examples[1::2]}
    for name, order in orders.items():
        shown = ', '.join(f"({quoted(d['x'])}, {quoted(d['truth'])})" for d in order)
        given = f', examples => (SELECT * FROM (VALUES {shown}) AS e({field}, answer))' if order else ''
        kind = {'true': 'BOOLEAN', '1': 'INTEGER BETWEEN 1 AND 5'}.get(
            labels[0], f"ENUM({', '.join(map(quoted, labels))})")
        value = quoted if kind[:4] == 'ENUM' else str
        call = lambda how: f'LLM({quoted(prompt)}, {field}{given}{how}) RETURNS {kind}'
        raw = call(", calibrate => 'off'")
        probs = ', '.join(f'LLM_PROB({raw}, {value(l)}) AS p{k}' for k, l in enumerate(labels))
        asked = kvasir(f'SELECT i, {probs} FROM v ORDER BY i')
        p = [[r[f'p{k}'] for k in range(len(labels))] for r in asked]
        p, free = p[:len(rows)], p[len(rows):]
        likeliest = lambda p: [labels[x.index(max(x))] for x in p]
        default = kvasir(f"SELECT CAST({call('')} AS TEXT) AS a FROM v WHERE i < {len(rows)} ORDER BY i")
        yield name, common, [score(a, truth, labels) for a in (
            likeliest(p), [r['a'] for r in default], likeliest(divided(p, p, True)), likeliest(divided(p, free)))]


MOOD, STARS = "ENUM('positive', 'negative')", 'INTEGER BETWEEN 1 AND 5'


def compare_struct(kvasir, data, limit):
    rated = kvasir(f"SELECT review AS x, CASE WHEN fresh = 'fresh' THEN 'positive' ELSE 'negative' END AS mood, "
                   f"CAST(substr(rating, 1, 1) AS INTEGER) AS stars FROM '{data}/rt.reviews.tsv.gz' "
                   f"WHERE rating IN ('1/5', '2/5', '3/5', '4/5', '5/5') AND length(review) BETWEEN 20 AND 220 "
                   f"ORDER BY id, x")
    random.Random(7).shuffle(rated)
    examples = [next(r for r in rated if r['stars'] == k) for k in (2, 5, 1, 4, 3)]
    rows = [r for r in rated if r not in examples][:limit]
    values = ', '.join(f"({i}, {quoted(r['x'])})" for i, r in enumerate(rows))
    kvasir('DROP TABLE IF EXISTS v', f'CREATE TABLE v AS SELECT * FROM (VALUES {values}) AS v(i, review)')
    shown = ', '.join(f"({quoted(r['x'])}, {quoted(r['mood'])}, {r['stars']})" for r in examples)
    kvasir('DROP TABLE IF EXISTS shots',
           f'CREATE TABLE shots AS SELECT * FROM (VALUES {shown}) AS e(review, mood, stars)')
    calls = lambda mood, stars: (f"LLM('Is the review positive or negative?', review{mood}) RETURNS {MOOD} AS mood, "
                                 f"LLM('How many stars does the critic of {{review}} give, from 1 (bad) to 5 (good)?', "
                                 f"review{stars}) RETURNS {STARS} AS stars")
    struct = lambda shots: f"LLM('Read the review', review{shots}) RETURNS STRUCT(mood {MOOD}, stars {STARS})"
    of = ', examples => (SELECT review, {} AS answer FROM shots ORDER BY rowid)'
    forms = {'calls': calls('', ''), 'struct': struct(''), 'calls, examples': calls(of.format('mood'), of.format('stars')),
             'struct, examples': struct(', examples => shots')}
    for name, form in forms.items():
        counted = kvasir(f'EXPLAIN (TOKENS, FORMAT JSON) SELECT {form} FROM v')
        answers = kvasir(f'SELECT i, mood, stars FROM (SELECT i, {form} FROM v) ORDER BY i')
        scores = [score([a[c] for a in answers], [r[c] for r in rows], labels)
                  for c, labels in (('mood', MOODS), ('stars', [1, 2, 3, 4, 5]))]
        print(f"{name:17} " + '  '.join(f'{a:.3f} {b:.3f}' for a, b in scores) + f'  {computed(counted):,}', flush=True)


def computed(plan):
    """The computed tokens of a plan's calls under the strategy 'fixed'."""
    if isinstance(plan, list):
        return sum(map(computed, plan))
    if not isinstance(plan, dict):
        return 0
    own = plan.get('computed_tokens', 0) if plan.get('strategy') == 'fixed' else 0
    return own + sum(computed(x) for x in plan.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--kvasir', default=os.path.join(SOURCE, 'build', 'release', 'kvasir'))
    parser.add_argument('--data', default=os.path.join(SOURCE, '..', 'shared', 'data'))
    parser.add_argument('--rows', type=int, default=300)
    parser.add_argument('--struct', action='store_true')
    parser.add_argument('tasks', nargs='*')
    options = parser.parse_args()
    if options.struct:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{'form':17} {'mood':11}  {'stars':11}  computed")
            compare_struct(Kvasir(options.kvasir, os.path.join(folder, 'bench.kvasir')), options.data, options.rows)
        return
    names = ('off', 'default', 'log', 'free')
    print(f"{'task':9} {'examples':9} {'common':>6} " + ' '.join(f'{n:>9}' for n in names))
    sums, low = {'none': [], 'some': []}, [0] * len(names)
    with tempfile.TemporaryDirectory() as folder:
        kvasir = Kvasir(options.kvasir, os.path.join(folder, 'bench.kvasir'))
        chosen = tasks(options.data)
        for task in options.tasks or chosen:
            for order, common, scores in examine(kvasir, chosen[task], options.rows):
                print(f'{task:9} {order:9} {common:6.2f} ' + ' '.join(f'{a:.2f} {b:.2f}' for a, b in scores), flush=True)
                sums['none' if order == 'none' else 'some'].append(scores)
                low = [n + (order != 'none' and s[0] < common - 0.05) for n, s in zip(low, scores)]
    for name, table in sums.items():
        mean = [[sum(s[k][j] for s in table) / len(table) for j in (0, 1)] for k in range(len(names))]
        print(f"{'mean':9} {name:9} {'':6} " + ' '.join(f'{a:.2f} {b:.2f}' for a, b in mean))
    print(f"{'low':9} {'':9} {'':6} " + ' '.join(f'{n:9}' for n in low))


main()
