/*
 * grammar.y - the SQL grammar, for lemon. Its actions only call the constructors of ast.c.
 *
 * The words listed as %fallback are keywords only where the grammar accepts them, and names
 * elsewhere. FILTER, LATERAL, OVER, QUALIFY and WINDOW, and the names of SQL_LLM_NAMES (LLM_NAME), are
 * keywords only if parse.c finds the tokens around them that their syntax requires. All other keywords are reserved.
 * The binder resolves names and types.
 */
%name sql_grammar
%token_prefix TK_
%token_type {token}
%default_type {token}
%extra_argument {parser *p}
%stack_size 0
%start_symbol start

%include {
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "parse/ast_int.h"
#include "grammar.h"

#define YYNOERRORRECOVERY 1
#define NO_TOKEN ((token){{NULL, 0}, -1, 0})

static int end_of(token t) {
    return t.pos + t.len;
}
}

%syntax_error {
    int codes[YYNTOKEN], n = 0; /* tokens that the grammar accepts here, for the hint */
    for (int code = 0; code < YYNTOKEN; code++)
        if (yy_find_shift_action((YYCODETYPE)code, yypParser->yytos->stateno) != YY_ERROR_ACTION)
            codes[n++] = code;
    parser_unexpected(p, yymajor, TOKEN, codes, n);
}
%stack_overflow {
    parser_fail(p, ERR_LIMIT, p->last.pos, p->last.len, "the statement is nested too deeply");
}

%fallback ID
    ADD ALTER ANALYZE ANSWERS BEGIN CACHE CLEAR COLUMN COMMIT CONFLICT COPY CURRENT DO END ERROR EXCLUDE EXPLAIN FILTER
    FIRST FOLLOWING GROUPS IF INDEX KEY KV LAST LATERAL LLM_NAME MATERIALIZED MODEL NO NOTHING NULLS OFFSET OTHERS PARTITION PIN PRECEDING
    RANGE RECURSIVE RENAME REPLACE RESET RETURNS ROLLBACK ROW ROWS SHOW STRUCT TIES TO TRANSACTION UNBOUNDED UNPIN
    VIEW WARM.

%nonassoc LOWEST.
%nonassoc RP.
%left OR.
%left AND.
%right NOT.
%left IS LIKE ILIKE GLOB REGEXP BETWEEN IN EQ NE.
%left LT LE GT GE.
%right ESCAPE.
%left L2_DISTANCE COSINE_DISTANCE NEGATIVE_INNER.
%left PLUS MINUS.
%left STAR SLASH PERCENT.
%left CONCAT.
%right SIGN.
%left CAST_TO.
%left UNION EXCEPT.
%left INTERSECT.

start ::= statement semicolons.
start ::= EXPRESSION expr(X). {
    p->result = ast_new(p, AST_NONE);
    p->result->value = X;
}
semicolons ::= .
semicolons ::= semicolons SEMI.

/* ---- statements -------------------------------------------------------------------------------- */

%type command {ast *}
%type explainable {ast *}
statement ::= command(C). { p->result = C; }
command(A) ::= explainable(E). { A = E; }

explainable(A) ::= query(Q). { A = ast_new(p, AST_QUERY); A->query = Q; }
explainable(A) ::= insert(I) returning(R). {
    A = I;
    A->returning = R;
}
explainable(A) ::= UPDATE name(N) target_alias(T) SET assignments(L) from_opt(F) where_opt(W) returning(R). {
    A = ast_new(p, AST_UPDATE);
    A->name = ident_of(p, N);
    A->name2 = ident_of(p, T);
    A->items = *L;
    A->from = F;
    A->where = W;
    A->returning = R;
}
explainable(A) ::= DELETE FROM name(N) target_alias(T) where_opt(W) returning(R). {
    A = ast_new(p, AST_DELETE);
    A->name = ident_of(p, N);
    A->name2 = ident_of(p, T);
    A->where = W;
    A->returning = R;
}

%type returning {list *}
returning(A) ::= . { A = NULL; }
returning(A) ::= RETURNING select_items(L). { A = L; }

target_alias(A) ::= . { A = NO_TOKEN; }
target_alias(A) ::= AS name(N). { A = N; }
target_alias(A) ::= ID|STRINGNAME(N). { A = N; }

%type assignments {list *}
%type assignment {assignment *}
assignments(A) ::= assignment(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
assignments(A) ::= column_list(C) EQ expr(X). { A = list_new(p->mem); assign_row(p, A, C, X); }
assignments(A) ::= assignments(A) COMMA assignment(X). { list_add(p->mem, A, X); }
assignments(A) ::= assignments(A) COMMA column_list(C) EQ expr(X). { assign_row(p, A, C, X); }
assignment(A) ::= name(N) EQ expr(X). {
    A = ARENA_NEW(p->mem, assignment);
    A->column = ident_of(p, N);
    A->value = X;
}

%type insert {ast *}
insert(A) ::= INSERT INTO name(N) query(Q) on_conflict(O). { A = ast_insert(p, N, NULL, Q, O); }
insert(A) ::= INSERT INTO name(N) column_list(C) query(Q) on_conflict(O). { A = ast_insert(p, N, C, Q, O); }
insert(A) ::= WITH recursive(R) ctes(W) INSERT INTO name(N) query(Q) on_conflict(O). {
    token start = {{NULL, 0}, Q->pos, 0};
    A = ast_insert(p, N, NULL, query_with(p, start, Q, W, R), O);
}
insert(A) ::= WITH recursive(R) ctes(W) INSERT INTO name(N) column_list(C) query(Q) on_conflict(O). {
    token start = {{NULL, 0}, Q->pos, 0};
    A = ast_insert(p, N, C, query_with(p, start, Q, W, R), O);
}
insert(A) ::= INSERT INTO name(N) DEFAULT VALUES. { A = ast_insert(p, N, NULL, NULL, NULL); }

%type on_conflict {ast *}
on_conflict(A) ::= . { A = NULL; }
on_conflict(A) ::= ON CONFLICT column_list_opt(C) DO NOTHING. {
    A = ast_new(p, AST_NONE);
    A->on_conflict = CONFLICT_NOTHING;
    if (C)
        A->conflict_columns = *C;
}
on_conflict(A) ::= ON CONFLICT column_list_opt(C) DO UPDATE SET assignments(L) where_opt(W). {
    A = ast_new(p, AST_NONE);
    A->on_conflict = CONFLICT_UPDATE;
    if (C)
        A->conflict_columns = *C;
    A->conflict_set = *L;
    A->conflict_where = W;
}

/* ---- definitions ------------------------------------------------------------------------------- */

%type or_replace {bool}
%type if_exists {bool}
%type if_not_exists {bool}
%type unique_opt {bool}
or_replace(A) ::= . { A = false; }
or_replace(A) ::= OR REPLACE. { A = true; }
if_exists(A) ::= . { A = false; }
if_exists(A) ::= IF EXISTS. { A = true; }
if_not_exists(A) ::= . { A = false; }
if_not_exists(A) ::= IF NOT EXISTS. { A = true; }
unique_opt(A) ::= . { A = false; }
unique_opt(A) ::= UNIQUE. { A = true; }

command(A) ::= CREATE TABLE if_not_exists(E) name(N) LP table_body(B) RP. {
    A = ast_new(p, AST_CREATE_TABLE);
    A->if_not_exists = E;
    A->name = ident_of(p, N);
    A->table = B;
}
explainable(A) ::= CREATE TABLE if_not_exists(E) name(N) AS query(Q). {
    A = ast_new(p, AST_CREATE_TABLE);
    A->if_not_exists = E;
    A->name = ident_of(p, N);
    A->query = Q;
}

%type table_body {table_spec *}
table_body(A) ::= column_spec(C). {
    A = ARENA_NEW(p->mem, table_spec);
    list_add(p->mem, &A->columns, C);
}
table_body(A) ::= table_body(A) COMMA column_spec(C). { list_add(p->mem, &A->columns, C); }
table_body(A) ::= table_body(A) COMMA constraint_name PRIMARY(K) KEY column_list(L). {
    if (A->primary_key.n)
        parser_fail(p, ERR_BIND, K.pos, K.len, "a table can have only one primary key");
    A->primary_key = *L;
}
table_body(A) ::= table_body(A) COMMA constraint_name UNIQUE column_list(L). {
    list_add(p->mem, &A->uniques, L);
}
table_body(A) ::= table_body(A) COMMA constraint_name CHECK LP expr(X) RP. {
    check_spec *c = ARENA_NEW(p->mem, check_spec);
    c->value = X;
    /* ends with the expression: a -- comment between it and the ) would lose the line end that closes it */
    c->sql = slice_of(p, X->pos, X->pos + X->len);
    list_add(p->mem, &A->checks, c);
}
constraint_name ::= .
constraint_name ::= CONSTRAINT name.

%type column_spec {column_spec *}
column_spec(A) ::= name(N) type(T). {
    A = ARENA_NEW(p->mem, column_spec);
    A->name = ident_of(p, N);
    A->type = type_of(p, T, &A->dims);
}
column_spec(A) ::= name(N). { A = column_spec_untyped(p, N); }
column_spec(A) ::= column_spec(A) NOT NULL. { A->not_null = true; }
column_spec(A) ::= column_spec(A) NULL.
column_spec(A) ::= column_spec(A) CONSTRAINT name.
column_spec(A) ::= column_spec(A) PRIMARY KEY. { A->primary = true; }
column_spec(A) ::= column_spec(A) UNIQUE. { A->unique = true; }
column_spec(A) ::= column_spec(A) DEFAULT literal(X). {
    A->standard = X;
    A->default_sql = slice_of(p, X->pos, X->pos + X->len);
}
column_spec(A) ::= column_spec(A) DEFAULT name(N). {
    A->standard = node_column(p, NULL, N);
    A->default_sql = slice_of(p, N.pos, end_of(N));
}
column_spec(A) ::= column_spec(A) DEFAULT LP expr(X) RP. {
    A->standard = X;
    A->default_sql = slice_of(p, X->pos, X->pos + X->len);
}
column_spec(A) ::= column_spec(A) CHECK LP expr(X) RP. {
    str sql = slice_of(p, X->pos, X->pos + X->len);
    list_add(p->mem, &A->checks, X);
    A->check_sql = A->check_sql.n ? str_from(arena_printf(p->mem, "(%.*s) AND (%.*s)",
        (int)A->check_sql.n, A->check_sql.p, (int)sql.n, sql.p)) : sql;
}
column_spec(A) ::= column_spec(A) COLLATE(T) name. {
    parser_fail(p, ERR_UNSUPPORTED, T.pos, T.len, "COLLATE is not supported: texts compare by their bytes");
}
column_spec(A) ::= column_spec(A) REFERENCES(T) name column_list_opt. {
    parser_fail(p, ERR_UNSUPPORTED, T.pos, T.len, "foreign keys are not supported");
}

/* A type name. Only VECTOR has a width, its number of elements; one as in VARCHAR(20) is accepted and ignored. */
%type type {type_spec}
%type short_type {type_spec}
%type type_name {token}
type_name(A) ::= ID|STRINGNAME(X). { A = X; }
type(A) ::= short_type(T). { A = T; }
type(A) ::= type_name(N) type_name(M). {
    A = type_spec_new(p, N, NULL, M);
    A.name.name = str_from(arena_printf(p->mem, "%.*s %.*s", (int)N.text.n, N.text.p, (int)M.text.n, M.text.p));
}
short_type(A) ::= type_name(N). [LOWEST] { A = type_spec_new(p, N, NULL, N); }
short_type(A) ::= type_name(N) LP signed_number(X) RP(E). { A = type_spec_new(p, N, X, E); }
short_type(A) ::= type_name(N) LP signed_number COMMA signed_number RP(E). { A = type_spec_new(p, N, NULL, E); }

command(A) ::= CREATE unique_opt(U) INDEX if_not_exists(E) index_name(N) ON name(T) LP order_list(L) RP. {
    A = ast_new(p, AST_CREATE_INDEX);
    A->unique = U;
    A->if_not_exists = E;
    A->name = ident_of(p, N);
    A->name2 = ident_of(p, T);
    A->items = *L;
}
command(A) ::= CREATE unique_opt(U) INDEX if_not_exists(E) index_name(N) ON name(T) USING name(M) LP name(C) index_class(O) RP copy_options(L). {
    A = ast_new(p, AST_CREATE_INDEX);
    A->unique = U;
    A->if_not_exists = E;
    A->name = ident_of(p, N);
    A->name2 = ident_of(p, T);
    A->column = ident_of(p, M);
    list_add(p->mem, &A->columns, ident_copy(p, C));
    list_add(p->mem, &A->columns, ident_copy(p, O));
    if (L)
        A->items = *L;
}
index_class(A) ::= . { A = NO_TOKEN; }
index_class(A) ::= name(N). { A = N; }
index_name(A) ::= . { A = NO_TOKEN; }
index_name(A) ::= name(N). { A = N; }
command(A) ::= CREATE or_replace(R) VIEW if_not_exists(E) name(N) column_list_opt(C) AS(T) query(Q). {
    A = ast_new(p, AST_CREATE_VIEW);
    A->or_replace = R;
    A->if_not_exists = E;
    A->name = ident_of(p, N);
    if (C)
        A->columns = *C;
    A->query = Q;
    A->sql = slice_of(p, end_of(T), Q->pos + Q->len);
}
command(A) ::= CREATE or_replace(R) MODEL if_not_exists(E) name(N) FROM model_source(S) copy_options(O). {
    A = ast_new(p, AST_CREATE_MODEL);
    A->or_replace = R;
    A->if_not_exists = E;
    A->name = ident_of(p, N);
    A->path = S;
    if (O)
        A->items = *O;
}
%type model_source {str}
%type source_list {str}
model_source(A) ::= STRING(S). { A = text_of(p, S); }
model_source(A) ::= LP source_list(L) RP. { A = L; }
source_list(A) ::= STRING(S). { A = text_of(p, S); }
source_list(A) ::= source_list(L) COMMA STRING(S). {
    str more = text_of(p, S);
    A.p = arena_printf(p->mem, "%.*s %.*s", (int)L.n, L.p, (int)more.n, more.p);
    A.n = L.n + 1 + more.n;
}
command(A) ::= DROP drop_kind(K) if_exists(E) name(N). {
    A = ast_new(p, AST_DROP);
    A->stmt = K;
    A->if_exists = E;
    A->name = ident_of(p, N);
}
%type drop_kind {stmt_kind}
drop_kind(A) ::= TABLE. { A = STMT_DROP_TABLE; }
drop_kind(A) ::= INDEX. { A = STMT_DROP_INDEX; }
drop_kind(A) ::= VIEW. { A = STMT_DROP_VIEW; }
drop_kind(A) ::= MODEL. { A = STMT_DROP_MODEL; }

command(A) ::= ALTER TABLE name(N) ADD column_opt column_spec(C). {
    A = ast_new(p, AST_ADD_COLUMN);
    A->name = ident_of(p, N);
    A->spec = C;
}
command(A) ::= ALTER TABLE name(N) DROP column_opt name(C). {
    A = ast_new(p, AST_DROP_COLUMN);
    A->name = ident_of(p, N);
    A->column = ident_of(p, C);
}
command(A) ::= ALTER TABLE name(N) RENAME TO name(M). {
    A = ast_new(p, AST_RENAME_TABLE);
    A->name = ident_of(p, N);
    A->name2 = ident_of(p, M);
}
command(A) ::= ALTER TABLE name(N) RENAME column_opt name(C) TO name(M). {
    A = ast_new(p, AST_RENAME_COLUMN);
    A->name = ident_of(p, N);
    A->column = ident_of(p, C);
    A->name2 = ident_of(p, M);
}
column_opt ::= .
column_opt ::= COLUMN.

/* ---- files ------------------------------------------------------------------------------------- */

command(A) ::= COPY name(N) column_list_opt(C) FROM STRING(S) copy_options(O). {
    A = ast_new(p, AST_COPY_FROM);
    A->name = ident_of(p, N);
    if (C)
        A->columns = *C;
    A->path = text_of(p, S);
    if (O)
        A->items = *O;
}
command(A) ::= COPY name(N) column_list_opt(C) TO STRING(S) copy_options(O). {
    A = ast_new(p, AST_COPY_TO);
    A->name = ident_of(p, N);
    if (C)
        A->columns = *C;
    A->path = text_of(p, S);
    if (O)
        A->items = *O;
}
command(A) ::= COPY paren_query(Q) TO STRING(S) copy_options(O). {
    A = ast_new(p, AST_COPY_TO);
    A->query = Q;
    A->path = text_of(p, S);
    if (O)
        A->items = *O;
}
%type copy_options {list *}
%type copy_list {list *}
%type copy_option {copy_option *}
copy_options(A) ::= . { A = NULL; }
copy_options(A) ::= LP copy_list(L) RP. { A = L; }
copy_options(A) ::= WITH LP copy_list(L) RP. { A = L; }
copy_list(A) ::= copy_option(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
copy_list(A) ::= copy_list(A) COMMA copy_option(X). { list_add(p->mem, A, X); }
copy_option(A) ::= option_name(N). {
    A = ARENA_NEW(p->mem, copy_option);
    A->name = ident_of(p, N);
}
copy_option(A) ::= option_name(N) eq_opt option_value(V). {
    A = ARENA_NEW(p->mem, copy_option);
    A->name = ident_of(p, N);
    A->value = V;
}
eq_opt ::= .
eq_opt ::= EQ.
option_name(A) ::= ID(X). { A = X; }
option_name(A) ::= NULL(X). { A = X; }
%type option_value {node *}
option_value(A) ::= literal(X). { A = X; }
option_value(A) ::= ID(X). { A = node_value(p, X, value_text(ident_of(p, X).name)); }
option_value(A) ::= ON(X). { A = node_value(p, X, value_text(X.text)); }

/* ---- transactions, settings, explanations -------------------------------------------------------- */

command(A) ::= BEGIN transaction_opt. { A = ast_new(p, AST_SIMPLE); A->stmt = STMT_BEGIN; }
command(A) ::= COMMIT transaction_opt. { A = ast_new(p, AST_SIMPLE); A->stmt = STMT_COMMIT; }
command(A) ::= END transaction_opt. { A = ast_new(p, AST_SIMPLE); A->stmt = STMT_COMMIT; }
command(A) ::= ROLLBACK transaction_opt. { A = ast_new(p, AST_SIMPLE); A->stmt = STMT_ROLLBACK; }
transaction_opt ::= .
transaction_opt ::= TRANSACTION.

command(A) ::= SET setting(S) set_sign set_value(V). { A = S; A->kind = AST_SET; A->value = V; }
set_sign ::= EQ.
set_sign ::= TO.
%type setting {ast *}
setting(A) ::= name(N). { A = ast_new(p, AST_SET); A->name = ident_of(p, N); }
setting(A) ::= name(N) DOT name(M). {
    A = ast_new(p, AST_SET);
    A->name = ident_of(p, N);
    A->name2 = ident_of(p, M);
}
%type set_value {node *}
set_value(A) ::= literal(X). { A = X; }
set_value(A) ::= VARIABLE(X). { A = node_variable(p, X); }
set_value(A) ::= ID(X). { A = node_value(p, X, value_text(ident_of(p, X).name)); }
set_value(A) ::= ALL(X). { A = node_value(p, X, value_text(X.text)); }
set_value(A) ::= ON(X). { A = node_value(p, X, value_text(X.text)); }
set_value(A) ::= DEFAULT(X). { A = node_new(p, NODE_DEFAULT, X.pos, X.len); }

command(A) ::= RESET setting(S). { A = S; A->kind = AST_RESET; }
command(A) ::= RESET ALL. { A = ast_new(p, AST_RESET); }
command(A) ::= SHOW. { A = ast_new(p, AST_SHOW); }
command(A) ::= SHOW ALL. { A = ast_new(p, AST_SHOW); }
command(A) ::= SHOW setting(S). { A = S; A->kind = AST_SHOW; }
command(A) ::= ANALYZE. { A = ast_new(p, AST_ANALYZE); }
command(A) ::= ANALYZE name(N). { A = ast_new(p, AST_ANALYZE); A->name = ident_of(p, N); }
command(A) ::= CLEAR CACHE clear_what(W) clear_model(M). {
    A = ast_new(p, AST_CLEAR_CACHE);
    A->clear = W;
    A->name = ident_of(p, M);
}
%type clear_what {clear_what}
clear_what(A) ::= . { A = CLEAR_ALL; }
clear_what(A) ::= KV. { A = CLEAR_KV; }
clear_what(A) ::= ANSWERS. { A = CLEAR_ANSWERS; }
clear_model(A) ::= . { A = NO_TOKEN; }
clear_model(A) ::= FOR MODEL name(N). { A = N; }
command(A) ::= WARM name(N) USING llm(X). {
    A = ast_new(p, AST_WARM);
    A->name = ident_of(p, N);
    A->llm = X;
}
command(A) ::= PIN name(N) USING llm(X). {
    A = ast_new(p, AST_WARM);
    A->name = ident_of(p, N);
    A->llm = X;
    A->pin = true;
}
command(A) ::= UNPIN name(N). { A = ast_new(p, AST_UNPIN); A->name = ident_of(p, N); }

command(A) ::= EXPLAIN explainable(E). { A = ast_new(p, AST_EXPLAIN); A->inner = E; }
command(A) ::= EXPLAIN ANALYZE explainable(E). {
    A = ast_new(p, AST_EXPLAIN);
    A->analyze = true;
    A->inner = E;
}
command(A) ::= EXPLAIN LP explain_options(O) RP explainable(E). {
    A = ast_new(p, AST_EXPLAIN);
    A->items = *O;
    A->inner = E;
}
%type explain_options {list *}
%type explain_option {copy_option *}
explain_options(A) ::= explain_option(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
explain_options(A) ::= explain_options(A) COMMA explain_option(X). { list_add(p->mem, A, X); }
explain_option(A) ::= ID(N). {
    A = ARENA_NEW(p->mem, copy_option);
    A->name = ident_of(p, N);
}
explain_option(A) ::= ID(N) option_value(V). {
    A = ARENA_NEW(p->mem, copy_option);
    A->name = ident_of(p, N);
    A->value = V;
}

/* ---- queries ----------------------------------------------------------------------------------- */

%type query {query *}
%type paren_query {query *}
%type bare_query {query *}
%type operand {query *}
%type body {query *}
query(A) ::= bare_query(Q). { A = Q; }
query(A) ::= paren_query(Q). { A = Q; }
paren_query(A) ::= LP(O) bare_query(Q) RP(C). { A = query_paren(Q, O, C); }
paren_query(A) ::= LP(O) paren_query(Q) RP(C). { A = query_paren(Q, O, C); }
bare_query(A) ::= body(Q). { A = Q; }
bare_query(A) ::= operand(Q) ORDER BY order_list(O) limit_opt(L). { A = query_tail(p, Q, O, L.limit, L.offset); }
bare_query(A) ::= operand(Q) limit(L). { A = query_tail(p, Q, NULL, L.limit, L.offset); }
bare_query(A) ::= WITH(T) recursive(R) ctes(W) operand(Q). { A = query_with(p, T, Q, W, R); }
bare_query(A) ::= WITH(T) recursive(R) ctes(W) operand(Q) ORDER BY order_list(O) limit_opt(L). {
    A = query_with(p, T, query_tail(p, Q, O, L.limit, L.offset), W, R);
}
bare_query(A) ::= WITH(T) recursive(R) ctes(W) operand(Q) limit(L). {
    A = query_with(p, T, query_tail(p, Q, NULL, L.limit, L.offset), W, R);
}
%type recursive {bool}
recursive(A) ::= . { A = false; }
recursive(A) ::= RECURSIVE. { A = true; }
operand(A) ::= body(Q). { A = Q; }
operand(A) ::= paren_query(Q). { A = Q; }
body(A) ::= operand(X) UNION operand(Y). { A = query_setop(p, SETOP_UNION, X, Y); }
body(A) ::= operand(X) UNION ALL operand(Y). [UNION] { A = query_setop(p, SETOP_UNION_ALL, X, Y); }
body(A) ::= operand(X) UNION DISTINCT operand(Y). [UNION] { A = query_setop(p, SETOP_UNION, X, Y); }
body(A) ::= operand(X) EXCEPT operand(Y). { A = query_setop(p, SETOP_EXCEPT, X, Y); }
body(A) ::= operand(X) INTERSECT operand(Y). { A = query_setop(p, SETOP_INTERSECT, X, Y); }
body(A) ::= SELECT(S) distinct(D) select_items(I) from_opt(F) where_opt(W) group_opt(G) having_opt(H) windows_opt(N)
        qualify_opt(Q). {
    A = query_windows(p, query_select(p, S, D, I, F, W, G, H), N, Q);
}
body(A) ::= VALUES(S) value_rows(R). { A = query_values(p, S, R); }

%type distinct {bool}
distinct(A) ::= . { A = false; }
distinct(A) ::= ALL. { A = false; }
distinct(A) ::= DISTINCT. { A = true; }

%type ctes {list *}
%type cte {cte *}
ctes(A) ::= cte(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
ctes(A) ::= ctes(A) COMMA cte(X). { list_add(p->mem, A, X); }
cte(A) ::= name(N) column_list_opt(C) AS cte_sharing(S) paren_query(Q). { A = cte_new(p, N, C, Q, S); }
%type cte_sharing {cte_sharing}
cte_sharing(A) ::= . { A = CTE_EITHER; }
cte_sharing(A) ::= MATERIALIZED. { A = CTE_KEPT; }
cte_sharing(A) ::= NOT MATERIALIZED. { A = CTE_INLINED; }

%type select_items {list *}
%type select_item {select_item *}
select_items(A) ::= select_item(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
select_items(A) ::= select_items(A) COMMA select_item(X). { list_add(p->mem, A, X); }
select_item(A) ::= expr(X). { A = select_item_new(p, X, NULL); }
select_item(A) ::= expr(X) AS name(N). { A = select_item_new(p, X, &N); }
select_item(A) ::= expr(X) ID|STRINGNAME(N). { A = select_item_new(p, X, &N); }
select_item(A) ::= STAR(S). { A = select_item_new(p, node_star(p, NULL, S), NULL); }
select_item(A) ::= name(N) DOT STAR(S). { A = select_item_new(p, node_star(p, &N, S), NULL); }

%type value_rows {list *}
%type value_row {list *}
%type value_list {list *}
%type value_item {node *}
value_rows(A) ::= value_row(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
value_rows(A) ::= value_rows(A) COMMA value_row(X). { list_add(p->mem, A, X); }
value_row(A) ::= LP value_list(L) RP. { A = L; }
value_list(A) ::= value_item(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
value_list(A) ::= value_list(A) COMMA value_item(X). { list_add(p->mem, A, X); }
value_item(A) ::= expr(X). { A = X; }
value_item(A) ::= DEFAULT(T). { A = node_new(p, NODE_DEFAULT, T.pos, T.len); }

%type from_opt {from_item *}
%type from_list {from_item *}
%type join_tree {from_item *}
%type from_item {from_item *}
%type from_base {from_item *}
from_opt(A) ::= . { A = NULL; }
from_opt(A) ::= FROM(T) from_list(F). { A = F; A->clause = T.pos; }
from_list(A) ::= join_tree(F). { A = F; }
from_list(A) ::= from_list(X) COMMA join_tree(Y). { A = from_comma(p, X, Y); }
join_tree(A) ::= from_item(F). { A = F; }
join_tree(A) ::= join_tree(X) join_word(K) from_item(Y) ON expr(E). { A = from_join(p, K, X, Y, E, NULL); }
join_tree(A) ::= join_tree(X) join_word(K) from_item(Y) USING column_list(L). { A = from_join(p, K, X, Y, NULL, L); }
join_tree(A) ::= join_tree(X) NATURAL(T) join_word(K) from_item(Y). {
    A = from_join(p, K, X, Y, NULL, NULL);
    A->natural = ident_of(p, T);
}
join_tree(A) ::= join_tree(X) CROSS JOIN from_item(Y). { A = from_join(p, JOIN_CROSS, X, Y, NULL, NULL); }
%type join_word {join_kind}
join_word(A) ::= JOIN. { A = JOIN_INNER; }
join_word(A) ::= INNER JOIN. { A = JOIN_INNER; }
join_word(A) ::= LEFT outer JOIN. { A = JOIN_LEFT; }
join_word(A) ::= RIGHT(T) outer JOIN. {
    A = JOIN_LEFT;
    if (!p->failed) {
        parser_fail(p, ERR_UNSUPPORTED, T.pos, T.len, "RIGHT JOIN is not supported");
        err_hint(p->error, "swap the tables and write LEFT JOIN");
    }
}
join_word(A) ::= FULL(T) outer JOIN. {
    A = JOIN_LEFT;
    if (!p->failed) {
        parser_fail(p, ERR_UNSUPPORTED, T.pos, T.len, "FULL JOIN is not supported");
        err_hint(p->error, "write the UNION ALL of two LEFT JOINs");
    }
}
outer ::= .
outer ::= OUTER.
from_item(A) ::= from_base(F). [LOWEST] { A = F; }
from_item(A) ::= from_base(F) AS name(N) column_list_opt(C). { A = from_alias(p, F, &N, C); }
from_item(A) ::= from_base(F) ID|STRINGNAME(N) column_list_opt(C). { A = from_alias(p, F, &N, C); }
from_item(A) ::= LP join_tree(F) RP. { A = F; }
from_base(A) ::= name(N). { A = from_name(p, N); }
from_base(A) ::= STRING(S). { A = from_file(p, S); }
from_base(A) ::= name(N) LP llm_args(L) RP(E). { A = from_function(p, N, L, E); }
from_base(A) ::= paren_query(Q). [LOWEST] { A = from_query(p, Q); }
from_base(A) ::= llm(X). { A = from_llm(p, X); }
from_base(A) ::= LATERAL paren_query(Q). { A = from_query(p, Q); A->lateral = true; }
from_base(A) ::= LATERAL name(N) LP llm_args(L) RP(E). { A = from_function(p, N, L, E); }

%type where_opt {node *}
%type having_opt {node *}
%type group_opt {list *}
where_opt(A) ::= . { A = NULL; }
where_opt(A) ::= WHERE expr(X). { A = X; }
group_opt(A) ::= . { A = NULL; }
group_opt(A) ::= GROUP BY expr_list(L). { A = L; }
having_opt(A) ::= . { A = NULL; }
having_opt(A) ::= HAVING expr(X). { A = X; }

%type windows_opt {list *}
%type windows {list *}
%type window_def {window_def *}
%type qualify_opt {node *}
windows_opt(A) ::= . { A = NULL; }
windows_opt(A) ::= WINDOW windows(L). { A = L; }
windows(A) ::= window_def(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
windows(A) ::= windows(A) COMMA window_def(X). { list_add(p->mem, A, X); }
window_def(A) ::= name(N) AS LP(O) window(W) RP(C). { A = window_def_new(p, N, window_paren(W, O, C)); }
qualify_opt(A) ::= . { A = NULL; }
qualify_opt(A) ::= QUALIFY expr(X). { A = X; }

%type window {window_spec *}
%type window_order {list *}
%type frame_opt {frame_spec *}
/* No empty rule may precede a keyword that can be a name: the parser would read the keyword as a
 * name. */
window(A) ::= frame_opt(F). { A = window_new(p, NULL, NULL, NULL, F); }
window(A) ::= ORDER BY order_list(O) frame_opt(F). { A = window_new(p, NULL, NULL, O, F); }
window(A) ::= PARTITION BY expr_list(P) window_order(O) frame_opt(F). { A = window_new(p, NULL, P, O, F); }
window(A) ::= name(B) frame_opt(F). { A = window_new(p, &B, NULL, NULL, F); }
window(A) ::= name(B) ORDER BY order_list(O) frame_opt(F). { A = window_new(p, &B, NULL, O, F); }
window(A) ::= name(B) PARTITION BY expr_list(P) window_order(O) frame_opt(F). { A = window_new(p, &B, P, O, F); }
window_order(A) ::= . { A = NULL; }
window_order(A) ::= ORDER BY order_list(L). { A = L; }

%type frame_unit {struct { frame_unit unit; token start; }}
%type frame_bound {bound_spec *}
%type exclude_opt {frame_exclude}
frame_opt(A) ::= . { A = NULL; }
frame_opt(A) ::= frame_unit(U) frame_bound(X) exclude_opt(E). { A = frame_new(p, U.unit, U.start, X, NULL, E); }
frame_opt(A) ::= frame_unit(U) BETWEEN frame_bound(X) AND frame_bound(Y) exclude_opt(E). {
    A = frame_new(p, U.unit, U.start, X, Y, E);
}
frame_unit(A) ::= ROWS(T). { A.unit = FRAME_ROWS; A.start = T; }
frame_unit(A) ::= RANGE(T). { A.unit = FRAME_RANGE; A.start = T; }
frame_unit(A) ::= GROUPS(T). { A.unit = FRAME_GROUPS; A.start = T; }
frame_bound(A) ::= UNBOUNDED(S) PRECEDING(E). { A = bound_new(p, BOUND_UNBOUNDED_PRECEDING, NULL, S, E); }
frame_bound(A) ::= UNBOUNDED(S) FOLLOWING(E). { A = bound_new(p, BOUND_UNBOUNDED_FOLLOWING, NULL, S, E); }
frame_bound(A) ::= CURRENT(S) ROW(E). { A = bound_new(p, BOUND_CURRENT, NULL, S, E); }
frame_bound(A) ::= expr(X) PRECEDING(E). { A = bound_new(p, BOUND_PRECEDING, X, E, E); }
frame_bound(A) ::= expr(X) FOLLOWING(E). { A = bound_new(p, BOUND_FOLLOWING, X, E, E); }
exclude_opt(A) ::= . { A = EXCLUDE_NO_OTHERS; }
exclude_opt(A) ::= EXCLUDE NO OTHERS. { A = EXCLUDE_NO_OTHERS; }
exclude_opt(A) ::= EXCLUDE CURRENT ROW. { A = EXCLUDE_CURRENT_ROW; }
exclude_opt(A) ::= EXCLUDE GROUP. { A = EXCLUDE_GROUP; }
exclude_opt(A) ::= EXCLUDE TIES. { A = EXCLUDE_TIES; }

%type order_list {list *}
%type order_item {order_item *}
%type descending {bool}
%type nulls {int}
order_list(A) ::= order_item(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
order_list(A) ::= order_list(A) COMMA order_item(X). { list_add(p->mem, A, X); }
order_item(A) ::= expr(X) descending(D) nulls(N). { A = order_item_new(p, X, D, N); }
descending(A) ::= . { A = false; }
descending(A) ::= ASC. { A = false; }
descending(A) ::= DESC. { A = true; }
nulls(A) ::= . { A = -1; }
nulls(A) ::= NULLS FIRST. { A = 1; }
nulls(A) ::= NULLS LAST. { A = 0; }

%type limit {struct { node *limit, *offset; }}
%type limit_opt {struct { node *limit, *offset; }}
limit_opt(A) ::= . { A.limit = A.offset = NULL; }
limit_opt(A) ::= limit(L). { A.limit = L.limit; A.offset = L.offset; }
limit(A) ::= LIMIT limit_value(X). { A.limit = X; A.offset = NULL; }
limit(A) ::= LIMIT limit_value(X) offset expr(Y). { A.limit = X; A.offset = Y; }
limit(A) ::= LIMIT limit_value(X) COMMA(T) expr. {
    A.limit = X;
    A.offset = NULL;
    limit_of_two(p, T);
}
limit(A) ::= offset expr(Y). { A.limit = NULL; A.offset = Y; }
limit(A) ::= offset expr(Y) LIMIT limit_value(X). { A.limit = X; A.offset = Y; }
offset ::= OFFSET.
offset ::= OFFSET_NUMBER. /* an OFFSET before a number, which parse.c recognised as not being an alias */
%type limit_value {node *}
limit_value(A) ::= expr(X). { A = X; }
limit_value(A) ::= ALL. { A = NULL; }

%type column_list {list *}
%type column_list_opt {list *}
%type name_list {list *}
column_list_opt(A) ::= . { A = NULL; }
column_list_opt(A) ::= column_list(L). { A = L; }
column_list(A) ::= LP name_list(L) RP. { A = L; }
name_list(A) ::= name(N). { A = list_new(p->mem); list_add(p->mem, A, ident_copy(p, N)); }
name_list(A) ::= name_list(A) COMMA name(N). { list_add(p->mem, A, ident_copy(p, N)); }
name(A) ::= ID|STRINGNAME(N). { A = N; }

/* ---- expressions ------------------------------------------------------------------------------- */

%type expr {node *}
%type literal {node *}
%type expr_list {list *}
expr_list(A) ::= expr(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
expr_list(A) ::= expr_list(A) COMMA expr(X). { list_add(p->mem, A, X); }

literal(A) ::= STRING(T). { A = node_text(p, T); }
literal(A) ::= BLOB(T). { A = node_blob(p, T); }
literal(A) ::= NULL(T). { A = node_value(p, T, value_null()); }
literal(A) ::= TRUE(T). { A = node_value(p, T, value_bool(true)); }
literal(A) ::= FALSE(T). { A = node_value(p, T, value_bool(false)); }
literal(A) ::= signed_number(X). { A = X; }
%type signed_number {node *}
signed_number(A) ::= NUMBER(T). { A = node_number(p, T); }
signed_number(A) ::= PLUS NUMBER(T). { A = node_number(p, T); }
signed_number(A) ::= MINUS(M) NUMBER(T). { A = node_unary(p, OP_NEG, M, node_number(p, T)); }

expr(A) ::= STRING(T). { A = node_text(p, T); }
expr(A) ::= BLOB(T). { A = node_blob(p, T); }
expr(A) ::= NUMBER(T). { A = node_number(p, T); }
expr(A) ::= NULL(T). { A = node_value(p, T, value_null()); }
expr(A) ::= TRUE(T). { A = node_value(p, T, value_bool(true)); }
expr(A) ::= FALSE(T). { A = node_value(p, T, value_bool(false)); }
expr(A) ::= VARIABLE(T). { A = node_variable(p, T); }
expr(A) ::= name(N). { A = node_column(p, NULL, N); }
expr(A) ::= name(T) DOT name(N). { A = node_column(p, &T, N); }
expr(A) ::= LP(O) expr(X) RP(C). { A = node_span(X, O.pos, end_of(C)); }
expr(A) ::= LP(O) expr(X) COMMA expr_list(L) RP(C). { A = node_row(p, O, X, L, C); }
expr(A) ::= paren_query(Q). [LOWEST] { A = node_subquery(p, Q); }
expr(A) ::= EXISTS(T) paren_query(Q). { A = node_exists(p, T, Q); }

expr(A) ::= expr(X) OR expr(Y). { A = node_binary(p, OP_OR, X, Y); }
expr(A) ::= expr(X) AND expr(Y). { A = node_binary(p, OP_AND, X, Y); }
expr(A) ::= NOT(T) expr(X). { A = node_unary(p, OP_NOT, T, X); }
expr(A) ::= expr(X) EQ expr(Y). { A = node_binary(p, OP_EQ, X, Y); }
expr(A) ::= expr(X) NE expr(Y). { A = node_binary(p, OP_NE, X, Y); }
expr(A) ::= expr(X) LT expr(Y). { A = node_binary(p, OP_LT, X, Y); }
expr(A) ::= expr(X) LE expr(Y). { A = node_binary(p, OP_LE, X, Y); }
expr(A) ::= expr(X) GT expr(Y). { A = node_binary(p, OP_GT, X, Y); }
expr(A) ::= expr(X) GE expr(Y). { A = node_binary(p, OP_GE, X, Y); }
expr(A) ::= expr(X) PLUS expr(Y). { A = node_binary(p, OP_ADD, X, Y); }
expr(A) ::= expr(X) MINUS expr(Y). { A = node_binary(p, OP_SUB, X, Y); }
expr(A) ::= expr(X) STAR expr(Y). { A = node_binary(p, OP_MUL, X, Y); }
expr(A) ::= expr(X) SLASH expr(Y). { A = node_binary(p, OP_DIV, X, Y); }
expr(A) ::= expr(X) PERCENT expr(Y). { A = node_binary(p, OP_MOD, X, Y); }
expr(A) ::= expr(X) CONCAT expr(Y). { A = node_binary(p, OP_CONCAT, X, Y); }
expr(A) ::= expr(X) L2_DISTANCE expr(Y). { A = node_distance(p, "l2_distance", X, Y); }
expr(A) ::= expr(X) COSINE_DISTANCE expr(Y). { A = node_distance(p, "cosine_distance", X, Y); }
expr(A) ::= expr(X) NEGATIVE_INNER expr(Y). { A = node_distance(p, "negative_inner_product", X, Y); }
expr(A) ::= MINUS(T) expr(X). [SIGN] { A = node_unary(p, OP_NEG, T, X); }
expr(A) ::= PLUS expr(X). [SIGN] { A = X; }

expr(A) ::= expr(X) IS expr(Y). { A = node_is(p, false, X, Y); }
expr(A) ::= expr(X) IS NOT expr(Y). [IS] { A = node_is(p, true, X, Y); }
expr(A) ::= expr(X) IS DISTINCT FROM expr(Y). [IS] { A = node_is(p, true, X, Y); }
expr(A) ::= expr(X) IS NOT DISTINCT FROM expr(Y). [IS] { A = node_is(p, false, X, Y); }

%type like_word {struct { expr_op op; bool negated; }}
like_word(A) ::= LIKE. { A.op = OP_LIKE; A.negated = false; }
like_word(A) ::= ILIKE. { A.op = OP_ILIKE; A.negated = false; }
like_word(A) ::= GLOB. { A.op = OP_GLOB; A.negated = false; }
like_word(A) ::= NOT LIKE. [LIKE] { A.op = OP_LIKE; A.negated = true; }
like_word(A) ::= NOT ILIKE. [LIKE] { A.op = OP_ILIKE; A.negated = true; }
like_word(A) ::= NOT GLOB. [LIKE] { A.op = OP_GLOB; A.negated = true; }
expr(A) ::= expr(X) like_word(L) expr(Y). [LIKE] { A = node_like(p, L.op, L.negated, X, Y, NULL); }
expr(A) ::= expr(X) like_word(L) expr(Y) ESCAPE expr(E). [LIKE] { A = node_like(p, L.op, L.negated, X, Y, E); }

expr(A) ::= expr(X) REGEXP expr(Y). { A = node_regexp(p, false, X, Y); }
expr(A) ::= expr(X) NOT REGEXP expr(Y). [REGEXP] { A = node_regexp(p, true, X, Y); }

%type between_word {bool}
between_word(A) ::= BETWEEN. { A = false; }
between_word(A) ::= NOT BETWEEN. { A = true; }
expr(A) ::= expr(X) between_word(N) expr(Y) AND expr(Z). [BETWEEN] { A = node_between(p, N, X, Y, Z); }
%type in_word {bool}
in_word(A) ::= IN. { A = false; }
in_word(A) ::= NOT IN. { A = true; }
expr(A) ::= expr(X) in_word(N) LP expr_list(L) RP(C). [IN] { A = node_in(p, N, X, L, NULL, C); }
expr(A) ::= expr(X) in_word(N) LP bare_query(Q) RP(C). [IN] { A = node_in(p, N, X, NULL, Q, C); }

expr(A) ::= CASE(T) case_operand(O) whens(W) case_else(E) END(X). { A = node_case(p, T, O, W, E, X); }
%type case_operand {node *}
%type case_else {node *}
%type whens {list *}
case_operand(A) ::= . { A = NULL; }
case_operand(A) ::= expr(X). { A = X; }
whens(A) ::= WHEN expr(X) THEN expr(Y). {
    A = list_new(p->mem);
    list_add(p->mem, A, X);
    list_add(p->mem, A, Y);
}
whens(A) ::= whens(A) WHEN expr(X) THEN expr(Y). {
    list_add(p->mem, A, X);
    list_add(p->mem, A, Y);
}
case_else(A) ::= . { A = NULL; }
case_else(A) ::= ELSE expr(X). { A = X; }

expr(A) ::= CAST(T) LP expr(X) AS type(Y) RP(C). { A = node_cast(p, T.pos, X, Y, end_of(C)); }
expr(A) ::= expr(X) CAST_TO short_type(Y). { A = node_cast(p, X->pos, X, Y, Y.end); }

%type call {node *}
%type filtered {node *}
%type over {window_spec *}
expr(A) ::= filtered(X). { A = node_aggregate(p, X); }
expr(A) ::= filtered(X) OVER over(W). { A = node_aggregate(p, node_over(p, X, W)); }
filtered(A) ::= call(X). { A = X; }
filtered(A) ::= call(X) FILTER LP WHERE expr(W) RP(C). { A = node_filter(p, X, W, C); }
over(A) ::= name(N). { A = window_named(p, N); }
over(A) ::= LP(O) window(W) RP(C). { A = window_paren(W, O, C); }
call(A) ::= name(N) LP RP(C). { A = node_call(p, N, false, NULL, C); }
call(A) ::= name(N) LP distinct(D) expr_list(L) RP(C). { A = node_call(p, N, D, L, C); }
call(A) ::= name(N) LP distinct(D) expr_list(L) ORDER BY order_list(O) RP(C). {
    A = node_ordered(p, node_call(p, N, D, L, C), O);
}
call(A) ::= LEFT|RIGHT(N) LP expr_list(L) RP(C). { A = node_call(p, N, false, L, C); }
call(A) ::= name(N) LP STAR RP(C). { A = node_call_star(p, N, C); }

/* ---- LLM calls --------------------------------------------------------------------------------- */

%type llm {node *}
%type llm_args {list *}
%type llm_arg {llm_arg *}
%type returns {llm_type *}
%type on_error {llm_on_error}
expr(A) ::= llm(X). { A = X; }
llm(A) ::= LLM(T) LP llm_args(L) on_error(E) RP(C). [LOWEST] { A = node_llm(p, T, L, E, NULL, C); }
llm(A) ::= LLM(T) LP llm_args(L) on_error(E) RP(C) RETURNS returns(R). { A = node_llm(p, T, L, E, R, C); }
llm(A) ::= LLM_NAME(T) LP llm_args(L) on_error(E) RP(C). { A = node_llm_name(p, T, L, E, C); }
llm_args(A) ::= llm_arg(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
llm_args(A) ::= llm_args(A) COMMA llm_arg(X). { list_add(p->mem, A, X); }
llm_arg(A) ::= expr(X). { A = llm_arg_new(p, X, NULL, NULL); }
llm_arg(A) ::= expr(X) AS name(N). { A = llm_arg_new(p, X, &N, NULL); }
llm_arg(A) ::= TEXT_LIST(T). { A = llm_arg_new(p, node_text_list(p, T), NULL, NULL); }
llm_arg(A) ::= STAR(S). { A = llm_arg_new(p, node_star(p, NULL, S), NULL, NULL); }
llm_arg(A) ::= name(N) DOT STAR(S). { A = llm_arg_new(p, node_star(p, &N, S), NULL, NULL); }
llm_arg(A) ::= name(N) ARROW expr(X). { A = llm_arg_new(p, X, NULL, &N); }
on_error(A) ::= . { A = (llm_on_error){0}; }
on_error(A) ::= ERROR ON ERROR. { A = (llm_on_error){.given = true, .fails = true}; }
on_error(A) ::= NULL(T) ON ERROR. { A = (llm_on_error){.given = true, .otherwise = node_value(p, T, value_null())}; }
on_error(A) ::= DEFAULT literal(X) ON ERROR. { A = (llm_on_error){.given = true, .otherwise = X}; }
returns(A) ::= type_name(N). [LOWEST] { A = llm_type_new(p, N, N, NULL, NULL, NULL, N); }
returns(A) ::= type_name(N) LP enum_literals(L) RP(C). { A = llm_type_new(p, N, N, L, NULL, NULL, C); }
returns(A) ::= type_name(N) BETWEEN signed_number(X) AND signed_number(Y). {
    token end = {{NULL, 0}, Y->pos, Y->len};
    A = llm_type_new(p, N, N, NULL, X, Y, end);
}
%type struct_fields {list *}
%type struct_field {struct_field *}
returns(A) ::= STRUCT(S) LP struct_fields(L) RP(C). [LOWEST] { A = llm_struct_new(p, S, L, C); }
returns(A) ::= STRUCT(S) LP struct_fields(L) RP IN ORDER(O). {
    A = llm_struct_new(p, S, L, O);
    A->in_order = true;
}
struct_fields(A) ::= struct_field(X). { A = list_new(p->mem); list_add(p->mem, A, X); }
struct_fields(A) ::= struct_fields(A) COMMA struct_field(X). { list_add(p->mem, A, X); }
struct_field(A) ::= name(N). { A = struct_field_untyped(p, N); }
struct_field(A) ::= name(N) returns(R). { A = struct_field_new(p, N, R, NULL); }
struct_field(A) ::= name(N) returns(R) STRING(D). { A = struct_field_new(p, N, R, &D); }
%type enum_literals {list *}
enum_literals(A) ::= STRING(S). {
    str *s = ARENA_NEW(p->mem, str);
    *s = text_of(p, S);
    A = list_new(p->mem);
    list_add(p->mem, A, s);
}
enum_literals(A) ::= enum_literals(A) COMMA STRING(S). {
    str *s = ARENA_NEW(p->mem, str);
    *s = text_of(p, S);
    list_add(p->mem, A, s);
}
