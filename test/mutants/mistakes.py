"""
mistakes.py - the small mistakes that mutants have

Each is a place of a C file, from one character to another, and what stands there instead: a condition negated, an
operand left out, a relation or a constant changed, a lock that is weaker, a call, a check or an assignment dropped,
an early return.  The file is read as PostgreSQL's style writes it, by regular expressions: what they misread does
not compile, which is no verdict on any test.
"""
import re


def mask(text):
    """Comments, strings and directives as blanks of the same length"""
    def blank(m):
        return re.sub(r'[^\n]', ' ', m.group(0))

    def string(m):
        return '"' + re.sub(r'[^\n]', 'x', m.group(0)[1:-1]) + '"'
    text = re.sub(r'/\*.*?\*/|//[^\n]*', blank, text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', string, text)
    text = re.sub(r"'(?:\\.|[^'\\\n])'", lambda m: "'" + 'x' * (len(m.group(0)) - 2) + "'", text)
    return re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', blank, text, flags=re.M)


def closing(text, at):
    """Where the parenthesis at this place is closed"""
    depth = 0
    for i in range(at, len(text)):
        if text[i] == '(':
            depth += 1
        elif text[i] == ')':
            depth -= 1
            if depth == 0:
                return i
    return -1


def operands(text, start, end):
    """The operands of && or || at the top of text[start:end], or nothing if it has neither, or both"""
    parts, depth, last, kinds = [], 0, start, set()
    i = start
    while i < end:
        c = text[i]
        if c in '([{':
            depth += 1
        elif c in ')]}':
            depth -= 1
        elif depth == 0 and text[i:i + 2] in ('&&', '||'):
            kinds.add(text[i:i + 2])
            parts.append((last, i))
            last = i + 2
            i += 1
        elif depth == 0 and c in '?,;':
            return []
        i += 1
    parts.append((last, end))
    return parts if len(kinds) == 1 else []


def functions_of(masked):
    """(name, result type, first character of the body, last) in PostgreSQL's style"""
    for m in re.finditer(r'^((?:[A-Za-z_][\w \t]*[\w*])[ \t*]*)\n([A-Za-z_]\w*)\(', masked, re.M):
        close = closing(masked, m.end() - 1)
        body = re.compile(r'\s*\n\{').match(masked, close + 1) if close > 0 else None
        if body:
            end = masked.find('\n}', body.end())
            yield m.group(2), m.group(1), body.end(), end


LOCKS = ['NoLock', 'AccessShareLock', 'RowShareLock', 'RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock',
         'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock']
SWAPS = {'<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '=='}


def mistakes(text):
    """All mutants of a file: (kind, function, start, end, replacement)"""
    masked = mask(text)
    found = []
    for name, result, begin, end in functions_of(masked):
        body = masked[begin:end]

        def add(kind, start, stop, new):
            found.append((kind, name, begin + start, begin + stop, new))

        quiet = []          # inside of assertions and messages nothing is changed
        for m in re.finditer(r'\b(Assert|AssertMacro|StaticAssert\w*|elog|errmsg\w*|errdetail\w*|errhint|ereport|PG_RETURN_VOID|gettext_noop)\s*\(', body):
            quiet.append((m.start(), closing(body, m.end() - 1)))

        def is_quiet(at):
            return any(a <= at <= b for a, b in quiet)

        conditions = []
        for m in re.finditer(r'\b(if|while)\s*\(', body):
            close = closing(body, m.end() - 1)
            inner = text[begin + m.end():begin + close]
            conditions.append((m.end(), close))
            if m.group(1) == 'if':
                add('negate condition', m.end(), close, '!(%s)' % inner)
                add('skip branch', m.end(), close, 'false && (%s)' % inner)
                add('always branch', m.end(), close, 'true || (%s)' % inner)
        for m in re.finditer(r'\breturn\s+([^;]*);', body):
            conditions.append((m.start(1), m.end(1)))
            if m.group(1) in ('true', 'false'):
                add('other constant', m.start(1), m.end(1), 'false' if m.group(1) == 'true' else 'true')
            elif re.match(r'(static |inline )*bool\b', result.strip()):
                add('negate condition', m.start(1), m.end(1), '!(%s)' % text[begin + m.start(1):begin + m.end(1)])
        for start, stop in conditions:
            todo = [(start, stop)]
            while todo:
                a, b = todo.pop()
                parts = operands(body, a, b)
                if len(parts) > 1:
                    for i, (x, y) in enumerate(parts):
                        add('drop operand', *((x, parts[i + 1][0]) if i + 1 < len(parts) else (parts[i - 1][1], y)), ' ')
                        if i + 1 < len(parts):
                            op = body[y:y + 2]
                            add('and/or', y, y + 2, '||' if op == '&&' else '&&')
                for x, y in parts if len(parts) > 1 else [(a, b)]:
                    m = re.match(r'\s*!?\s*\(', body[x:y])
                    if m and closing(body, x + m.end() - 1) == x + len(body[x:y].rstrip()) - 1:
                        todo.append((x + m.end(), closing(body, x + m.end() - 1)))
        for m in re.finditer(r'(?<=[\w)\]] )(<=|>=|==|!=|<|>)(?= [\w(!&*-])', body):
            if not is_quiet(m.start()):
                add('relation', m.start(), m.end(), SWAPS[m.group(0)])
        for m in re.finditer(r'(?<=[\w)\]]) ([+-]) 1\b(?![.\w])', body):
            if not is_quiet(m.start()) and not re.search(r'\bAnum_\w+$', body[:m.start()]):
                add('off by one', m.start(), m.end(), '')
        for m in re.finditer(r'(?<=[\w)\]]) ([+-]) (?=[\w(])', body):
            if not is_quiet(m.start()) and not re.search(r'\bAnum_\w+$', body[:m.start()]):
                add('plus/minus', m.start(), m.end(), ' - ' if m.group(1) == '+' else ' + ')
        for m in re.finditer(r'\b(Min|Max)\(', body):
            if not is_quiet(m.start()):
                add('other constant', m.start(1), m.end(1), 'Max' if m.group(1) == 'Min' else 'Min')
        for m in re.finditer(r'(?<=[(,=] )(true|false)(?=\s*[,);])|(?<=[(])(true|false)(?=\s*[,)])', body):
            if not is_quiet(m.start()):
                add('other constant', m.start(), m.end(), 'false' if m.group(0) == 'true' else 'true')
        for m in re.finditer(r'\b(%s)\b' % '|'.join(LOCKS), body):
            i = LOCKS.index(m.group(0))
            call = re.search(r'(\w+)\([^()]*$', body[:m.start()])
            # not where a lock goes on anyway, nor what only keeps a table from being dropped meanwhile
            if i and not is_quiet(m.start()) and call and 'close' not in call.group(1) and \
                    (i > 1 or re.search(r'[lL]ock', call.group(1))):
                add('weaker lock', m.start(), m.end(), LOCKS[i - 1] if i > 1 else 'NoLock')
        for m in re.finditer(r'(?<![\w.\[])([2-9]|[1-9]\d+)(?![\w.\]])', body):
            if not is_quiet(m.start()):
                add('other constant', m.start(), m.end(), str(int(m.group(0)) * 2 + 1))
        # statements: calls, assignments, checks that raise an error
        for m in re.finditer(r'(?<=[;{})\n])([ \t]*\n)*([ \t]+)(?:\(void\) )?((?!return\b|if\b|for\b|while\b|switch\b|else\b|do\b|case\b|PG_\w*TRY|Assert|StaticAssert|elog|PG_RETURN|foreach|PG_FREE|pfree|va_)[A-Za-z_]\w*)\(', body):
            close = closing(body, m.end() - 1)
            if close > 0 and re.match(r'\s*;', body[close + 1:]):
                stop = body.index(';', close) + 1
                start = m.start(2) + len(m.group(2))
                if m.group(3) == 'ereport' and not re.match(r'\(\s*(ERROR|FATAL)', body[m.end() - 1:]):
                    continue
                add('drop check' if m.group(3) == 'ereport' else 'drop call', start, stop, '(void) 0;')
        for m in re.finditer(r'(?<=[;{})\n])([ \t]*\n)*([ \t]+)((?:\*?[A-Za-z_][\w>.\[\]-]*) (?:[-+|&]?=) [^;{}]*;)', body):
            add('drop assignment', m.start(3), m.end(3), '(void) 0;')
        for m in re.finditer(r'\b(continue|break);', body):
            if m.group(1) == 'continue':
                add('drop continue', m.start(), m.end(), '(void) 0;')
        # early return, where declarations end
        first = re.compile(r'\n\n').search(body)
        words = result.replace('static', '').replace('inline', '').split()
        if first and words and '*' not in result and 'pg_noreturn' not in result:
            if words[0] == 'void' and body.count(';') > 2:
                add('early return', first.end(), first.end(), '\treturn;\n')
            elif words[0] == 'bool':
                add('early return', first.end(), first.end(), '\treturn false;\n')
                add('early return', first.end(), first.end(), '\treturn true;\n')
    return found
