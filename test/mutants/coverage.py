"""
coverage.py - which lines and branches of src/ each test reaches

coverage.json has, for each file, its text when it was measured, and for each line its executions, branches and tests;
and for each test its duration.  A tree that has changed since is compared with that text, so that only its new lines
are unknown.
"""
import collections
import difflib
import glob
import json
import os
import re
import subprocess

from suites import all_tests


def room_of(path):
    parts = path.split('/')
    return parts[1] if len(parts) > 2 else 'base'


def line_of(text, at):
    return text.count('\n', 0, at) + 1


def measure(runner, out, suites, wanted):
    """Runs each test of these suites by itself, if it matches, and adds what it reaches to the file."""
    problem = runner.build('--coverage -O1')
    if problem:
        raise SystemExit(problem)
    runner.install()
    flush_at_end(runner)
    data = {'tests': {}, 'files': {}}
    for number, (key, name) in enumerate(all_tests(runner.tree).items()):
        suite = key.split('/')[0]
        if suite not in suites or not re.search(wanted, key):
            continue
        prefix = os.path.join(runner.tmp, 'counts-%d' % number)
        more = {'GCOV_PREFIX': prefix, 'TTL_TEARDOWN': 'fast'}
        seconds, failed, said = runner.run(suite, [name], 900, more)
        print('%-60s %6.1f s %s' % (key, seconds, said or 'ok'), flush=True)
        data['tests'][key] = {'seconds': seconds, 'failed': failed}
        read_counts(runner.tree, prefix, key, data['files'])
        subprocess.run(['rm', '-rf', prefix], check=True)
        with open(out + '.new', 'w') as f:
            json.dump(data, f)
        os.rename(out + '.new', out)


def flush_at_end(runner):
    """A TAP test stops servers at its end so that they write no counts: makes it stop them as $TTL_TEARDOWN says."""
    for name in glob.glob(os.path.join(runner.pkglibdir, 'pgxs/src/test/perl/PostgreSQL/Test/Cluster.pm')):
        with open(name) as f:
            text = f.read()
        with open(name, 'w') as f:
            f.write(re.sub(r"(sub teardown_node\n\{.*?stop\()'immediate'", r"\1$ENV{TTL_TEARDOWN} || 'immediate'", text, flags=re.S))


def read_counts(tree, prefix, key, files):
    """gcov wants the counts and the compiler's notes side by side; objects that no process has reported have notes alone."""
    base = prefix + tree
    for notes in glob.glob(os.path.join(tree, 'src', '**', '*.gcno'), recursive=True):
        unit = os.path.relpath(notes, tree)
        there = os.path.join(base, unit)
        os.makedirs(os.path.dirname(there), exist_ok=True)
        if not os.path.exists(there):
            os.symlink(notes, there)
        p = subprocess.run(['gcov', '--json-format', '--stdout', '-b', there], cwd=tree, capture_output=True, text=True)
        for text in p.stdout.splitlines():
            if text.startswith('{'):
                add_counts(json.loads(text), tree, unit, key, files)


def add_counts(report, tree, unit, key, files):
    for f in report['files']:
        path = os.path.relpath(os.path.join(tree, f['file']), tree)
        if not path.startswith('src/'):
            continue
        entry = files.get(path)
        if entry is None:
            with open(os.path.join(tree, path)) as source:
                entry = files[path] = {'text': source.read(), 'lines': {}, 'functions': {}}
        for fn in f['functions']:
            e = entry['functions'].setdefault(fn['name'], {'line': fn['start_line'], 'end': fn['end_line'], 'count': 0})
            e['count'] += fn['execution_count']
        for line in f['lines']:
            e = entry['lines'].setdefault(str(line['line_number']), {'count': 0, 'branches': {}, 'tests': []})
            e['count'] += line['count']
            if line['count'] and key not in e['tests']:
                e['tests'].append(key)
            # those of calls that may throw are no conditions of the source; a header's belong to the unit
            branches = [b['count'] for b in line['branches'] if not b['throw']]
            sofar = e['branches'].setdefault(unit + '/' + line.get('function_name', ''), [0] * len(branches))
            for i, n in enumerate(branches[:len(sofar)]):
                sofar[i] += n


def branches_of(entry, path):
    lists = [list(e['branches'].values()) for e in entry['lines'].values()]
    if path.endswith('.h'):     # once, whoever includes it
        return [sum(one[i] for one in some if i < len(one))
                for some in lists for i in range(max((len(one) for one in some), default=0))]
    return [n for some in lists for one in some for n in one]


def table(data, skip, details):
    """Prints lines and branches per room and file; then each function, line and branch that no test reaches"""
    rooms = collections.defaultdict(dict)
    for path, entry in data['files'].items():
        branches = branches_of(entry, path)
        if room_of(path) not in skip:
            rooms[room_of(path)][path] = (len(entry['lines']), sum(1 for e in entry['lines'].values() if e['count']),
                                          len(branches), sum(1 for b in branches if b))

    def show(name, numbers):
        lines, run, branches, taken = [sum(n) for n in zip(*numbers)]
        print('%-40s %6d %6d %5.1f%%  %6d %6d %5.1f%%' % (name, lines, run, 100 * run / max(lines, 1),
                                                          branches, taken, 100 * taken / max(branches, 1)))
    print('%-40s %6s %6s %6s  %6s %6s %6s' % ('', 'lines', 'run', '%', 'branch', 'taken', '%'))
    for room in sorted(rooms):
        show(room, rooms[room].values())
        for path in sorted(rooms[room]):
            show('  ' + path, [rooms[room][path]])
    show('all', [n for room in rooms.values() for n in room.values()])
    for path in sorted(p for room in rooms.values() for p in room) if details else []:
        show_holes(path, data['files'][path])


def show_holes(path, entry):
    text = entry['text'].split('\n')
    never = [(fn['line'], fn['end'], name) for name, fn in entry['functions'].items() if not fn['count']]
    for line, _, name in sorted(never):
        print('never called: %s:%d %s' % (path, line, name))
    for n, e in sorted(entry['lines'].items(), key=lambda x: int(x[0])):
        if any(a <= int(n) <= b for a, b, _ in never):
            continue
        if not e['count']:
            print('never run: %s:%s: %s' % (path, n, text[int(n) - 1].strip()))
        elif any(0 in one for one in e['branches'].values()) and re.search(r'\b(if|while|for|return|&&|\|\||\?)', text[int(n) - 1]):
            print('one way only: %s:%s: %s' % (path, n, text[int(n) - 1].strip()))


class Reach:
    """Which tests reach a place of a tree that may have changed since"""

    def __init__(self, data, tree):
        self.tests = data['tests']
        self.files = data['files']
        self.tree = tree
        self.known = {}     # path: {line of the tree: tests}

    def lines_of(self, path, text):
        if path not in self.known:
            entry = self.files.get(path, {'text': '', 'lines': {}})
            old, new = entry['text'].split('\n'), text.split('\n')
            blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
            self.known[path] = {b + i + 1: entry['lines'][str(a + i + 1)]['tests']
                                for a, b, size in blocks for i in range(size) if str(a + i + 1) in entry['lines']}
        return self.known[path]

    def share(self, path, key):
        """The part of a file's lines that a test reaches"""
        lines = self.files.get(path, {'lines': {}})['lines'].values()
        return sum(key in e['tests'] for e in lines) / max(len(lines), 1)

    def of(self, path, text, start, end):
        """Keys of tests; None if nothing is known of the place, because it is new or of another version of PostgreSQL"""
        known = self.lines_of(path, text)
        rows = text.split('\n')
        a, b = line_of(text, start), line_of(text, max(start, end - 1))
        lines = [n for n in range(a, b + 1) if n in known]
        n = a
        while not lines and n > a - 12 and rows[n - 1] not in ('{', '}'):
            n -= 1
            lines = [n] if n in known else []
        # a condition's later lines may be reached only with the mistake: it begins further up
        while lines and a > 1 and not re.search(r'[;{}:]\s*(/\*.*)?$|^\s*$', rows[a - 2]):
            a -= 1
            if a in known:
                lines.append(a)
        if not lines:           # at the start of a function
            lines = [n for n in range(a, a + 6) if n in known][:1]
        return set().union(*(known[n] for n in lines)) if lines else None
