"""Renders a chat program (Jinja, on stdin) as transformers does, for the messages of a user, with answers between
them, and the generation prompt: prints the result. The messages are the arguments; bos_token is empty, since BOS is a
token of its own.

    pip install jinja2
"""
import sys
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment


def raise_exception(message):
    raise TemplateError(message)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
environment.globals["raise_exception"] = raise_exception
program = environment.from_string(sys.stdin.buffer.read().decode())
messages = [{"role": ["user", "assistant"][i % 2], "content": text} for i, text in enumerate(sys.argv[1:])]
out = program.render(messages=messages, add_generation_prompt=True, bos_token="", eos_token="</s>",
                     enable_thinking=False)
sys.stdout.buffer.write(out.encode())
