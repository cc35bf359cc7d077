"""Finds the functions of a C++, Python or shell source and how long they are."""

import ast
import re


def blank(text):
    """Comments, strings and preprocessor lines of C++ as spaces; line ends stay."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^()\\ ]{0,16})\(.*?\)(?P=d)"'
        r"|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'"
        r"|^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*",
        re.DOTALL | re.MULTILINE,
    )
    keep_newlines = lambda m: re.sub(r"[^\n]", " ", m.group(0))
    return token.sub(keep_newlines, text)


def blank_comments(text):
    """Comments of C++ as nothing, whole lines of them at least; line ends stay."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", "", m.group(0)), text, flags=re.DOTALL)
    return re.sub(r"^[ \t]*//[^\n]*", "", text, flags=re.MULTILINE)


def kind_of(head):
    """What a brace opens, by the words before it: namespace, class, function or other."""
    words = re.sub(r"\balignas\s*\([^)]*\)|\[\[.*?\]\]", " ", head)
    words = re.sub(r"^\s*template\s*<[^{;]*?>\s*(?=\w)", " ", words)
    if re.search(r"\bnamespace\b", words) or re.match(r"\s*extern\s*$", words):
        return "namespace"
    if re.match(r"\s*(typedef\s+)?(class|struct|union|enum)\b", words) and (
        "(" not in words.split(":")[0]
    ):
        return "class"
    if "(" in words and not re.search(r"(?<![=!<>])=\s*$", words):
        return "function"
    return "other"


def cpp_functions(text):
    """(name, first line, last line) of each function body, 1-based."""
    code = blank(text)
    found, scopes = [], []
    head_at, line, line_starts = 0, 1, [0]
    for i, c in enumerate(code):
        if c == "\n":
            line_starts.append(i + 1)
    line_of = lambda at: _bisect(line_starts, at)
    for i, c in enumerate(code):
        inside_function = any(s[0] == "function" for s in scopes)
        if c == "{":
            head = code[head_at:i]
            if inside_function:
                scopes.append(("inner", 0, ""))
            elif i and not code[i - 1].isspace() and code[i - 1] not in ")":
                scopes.append(("initializer", 0, ""))  # member_{value}: the head goes on
                continue
            else:
                start = head_at + len(head) - len(head.lstrip())
                scopes.append((kind_of(head), start, head.strip()))
            head_at = i + 1
        elif c == "}":
            if not scopes:
                continue
            kind, start, head = scopes.pop()
            if kind == "function":
                found.append((_name(head), line_of(start), line_of(i)))
            if kind != "initializer":
                head_at = i + 1
        elif c == ";" and not inside_function:
            if not scopes or scopes[-1][0] != "initializer":
                head_at = i + 1
    return found


def _bisect(starts, at):
    low, high = 0, len(starts)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if starts[middle] <= at else (low, middle)
    return low + 1


def _name(head):
    head = re.sub(r"\b__launch_bounds__\s*\([^)]*\)", " ", head)
    match = re.search(r"([~\w:]+)\s*\(", head)
    return match.group(1) if match else head[:40]


def python_functions(text):
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [(n.name, n.lineno, n.end_lineno) for n in ast.walk(ast.parse(text))
            if isinstance(n, kinds)]


def shell_functions(text):
    found, begun = [], None
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"(\w+)\s*\(\)\s*\{[^}]*$", line)
        if match:
            begun = (match.group(1), number)
        elif line.startswith("}") and begun:
            found.append((*begun, number))
            begun = None
    return found
