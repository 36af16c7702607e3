"""
mutants.py - what test/mutants/run does when it has trees and servers: see there
"""
import argparse
import collections
import csv
import difflib
import glob
import hashlib
import json
import os
import random
import re
import signal
import threading

from coverage import Reach, line_of, measure, room_of, table
from mistakes import mistakes
from suites import SUITES, Runner, all_tests, end_tests

FIELDS = ['id', 'room', 'file', 'line', 'function', 'kind', 'start', 'end', 'sum', 'before', 'after']
FIRST = 5       # so many tests are run at once before the others
VERDICTS = ['id', 'verdict', 'by', 'said', 'tests']


def read_tsv(path):
    if not os.path.exists(path):
        return []
    with open(path, newline='') as f:
        return list(csv.DictReader(f, delimiter='\t'))


def write_tsv(path, fields, rows, mode='w'):
    with open(path, mode, newline='') as f:
        w = csv.DictWriter(f, fields, delimiter='\t', lineterminator='\n')
        if mode == 'w':
            w.writeheader()
        w.writerows(rows)


def read(tree, path):
    with open(os.path.join(tree, path)) as f:
        return f.read()


# ---------------------------------------------------------------- choosing

def changed_lines(diff):
    """{path: its lines that a diff without context adds or changes, and those beside what it takes out}"""
    lines = collections.defaultdict(set)
    path = None
    for row in diff.split('\n'):
        if row.startswith('+++ '):
            path = row[6:]
        m = re.match(r'@@ -\S+ \+(\d+)(?:,(\d+))? @@', row)
        if m:
            first, number = int(m.group(1)), int(m.group(2) or 1)
            lines[path] |= set(range(first, first + (number or 2)))
    return lines


def choose(args):
    """Mutants of the lines that args.diff changes, or of all rooms alike; of the kinds of mistakes about the same number"""
    rng = random.Random(args.seed)
    only = None
    if args.diff:
        with open(args.diff) as f:
            only = changed_lines(f.read())
    reach = Reach(args.coverage, args.trees[0])
    pool = collections.defaultdict(lambda: collections.defaultdict(list))
    total = 0
    for full in sorted(glob.glob(args.trees[0] + '/src/**/*.c', recursive=True) + glob.glob(args.trees[0] + '/src/**/*.h', recursive=True)):
        path = os.path.relpath(full, args.trees[0])
        if room_of(path) in args.skip or (args.rooms and room_of(path) not in args.rooms) or (only is not None and path not in only):
            continue
        text = read(args.trees[0], path)
        for kind, function, start, end, after in mistakes(text):
            a, b = line_of(text, start), line_of(text, max(start, end - 1))
            if only is None and reach.of(path, text, start, end) is None:
                continue        # code of another version
            if only is not None and not only[path] & set(range(a, b + 1)):
                continue
            pool['' if only else room_of(path)][kind].append((path, function, start, end, after))
            total += 1
    chosen = []
    while len(chosen) < min(args.number, total):
        for room in sorted(pool):
            kinds = [k for k in sorted(pool[room]) if pool[room][k]]
            if kinds and len(chosen) < args.number:
                kind = rng.choice(kinds)
                chosen.append((kind,) + pool[room][kind].pop(rng.randrange(len(pool[room][kind]))))
    rows = []
    for i, (kind, path, function, start, end, after) in enumerate(chosen, 1):
        text = read(args.trees[0], path)
        rows.append({'id': i, 'room': room_of(path), 'file': path, 'line': line_of(text, start), 'function': function, 'kind': kind,
                     'start': start, 'end': end, 'sum': hashlib.sha1(text.encode()).hexdigest()[:12],
                     'before': json.dumps(text[start:end]), 'after': json.dumps(after)})
    write_tsv(args.work + '/mutants.tsv', FIELDS, rows)
    print('%d of %d possible mutants' % (len(rows), total), flush=True)


def mutated(tree, m):
    text = read(tree, m['file'])
    if hashlib.sha1(text.encode()).hexdigest()[:12] != m['sum']:
        raise SystemExit('%s is not the file that mutants.tsv was made from' % m['file'])
    return text, text[:int(m['start'])] + json.loads(m['after']) + text[int(m['end']):]


def show(args):
    for m in read_tsv(args.work + '/mutants.tsv'):
        if not args.ids or int(m['id']) in args.ids:
            text, new = mutated(args.trees[0], m)
            print('== %s %s %s:%s %s, %s' % (m['id'], m['room'], m['file'], m['line'], m['function'], m['kind']))
            print('\n'.join(line.rstrip() for line in list(difflib.unified_diff(text.split('\n'), new.split('\n'), lineterm=''))[3:]))


# ---------------------------------------------------------------- running

class Judge:
    """Tries mutants in one tree"""

    def __init__(self, args, number):
        self.args = args
        self.runner = Runner(args.trees[number], args.pg_configs[number], '%s/tmp%d' % (args.scratch, number))
        problem = self.runner.build()
        if problem:
            raise SystemExit(problem)
        self.runner.install()
        self.original = self.runner.object_code()
        self.reach = Reach(args.coverage, self.runner.tree)
        self.tests = all_tests(self.runner.tree)
        self.useless = set()    # tests that fail here without any mutant

    def batches(self, m, text):
        """The tests that reach the mutant, the best and short ones first; (suite, keys) of what is run at once"""
        keys = self.reach.of(m['file'], text, int(m['start']), int(m['end']))
        if keys is None:
            keys = self.reach.tests
        # tests that are younger than the coverage may reach it
        keys = set(keys) | (set(self.tests) - set(self.reach.tests))
        keys = [k for k in self.tests
                if k in keys and k.split('/')[0] in self.args.suites and re.search(self.args.tests, k)]
        seconds = {k: self.reach.tests.get(k, {'seconds': 20})['seconds'] for k in keys}
        keys = [k for k in keys if k not in self.useless and not self.reach.tests.get(k, {}).get('failed')]
        # those first that are about the file: that reach much of it in little time
        worth = {k: self.reach.share(m['file'], k) / max(seconds[k], 0.5) for k in keys}
        for suite in SUITES:
            of_suite = [k for k in keys if k.startswith(suite + '/')]
            best = sorted(of_suite, key=lambda k: -worth[k])
            if suite == 'tap':
                spent = 0
                for k in best:
                    spent += seconds[k]
                    if spent <= self.args.tap_seconds:
                        yield suite, [k]
            else:
                short = [k for k in best if seconds[k] < 5]
                first = (short or best)[:FIRST]
                rest = [] if self.args.quick else [[k for k in short if k not in first], [k for k in best if k not in short + first]]
                for some in [first] + rest:
                    if some:
                        yield suite, [k for k in of_suite if k in some]

    def put(self, path, text):
        with open(os.path.join(self.runner.tree, path), 'w') as f:
            f.write(text)

    def judge(self, m):
        text, new = mutated(self.runner.tree, m)
        try:
            self.put(m['file'], new)
            problem = self.runner.build()
            if problem:
                return {'verdict': 'noticed', 'by': 'compile', 'said': problem, 'tests': 0}
            if self.runner.object_code() == self.original:
                return {'verdict': 'same code', 'by': '', 'said': '', 'tests': 0}
            self.runner.install()
            count = 0
            for suite, keys in self.batches(m, text):
                while keys:
                    _, failed, said = self.runner.run(suite, [self.tests[k] for k in keys])
                    if failed is None:
                        count += len(keys)
                        break
                    if not self.fails_anyway(m, text, new, suite, failed):
                        return {'verdict': 'noticed', 'by': failed, 'said': said, 'tests': count + len(keys)}
                    keys = [k for k in keys if k not in self.useless]
            return {'verdict': 'survived', 'by': '', 'said': '', 'tests': count}
        finally:
            self.put(m['file'], text)

    def fails_anyway(self, m, text, new, suite, key):
        """A test that fails without the mutant, too, here and today, says nothing about it."""
        if key not in self.tests:
            return False
        self.put(m['file'], text)
        self.runner.build()
        self.runner.install()
        if self.runner.run(suite, [self.tests[key]])[1] is None:
            return False
        print('     %s fails without a mutant, too' % key, flush=True)
        self.useless.add(key)
        self.put(m['file'], new)
        self.runner.build()
        self.runner.install()
        return True


def run(args):
    out = args.work + '/verdicts.tsv'
    if args.anew or not os.path.exists(out):
        write_tsv(out, VERDICTS, [])
    had = {v['id'] for v in read_tsv(out)}
    judged = {j['id'] for j in read_tsv(args.work + '/judged.tsv')}
    todo = [m for m in read_tsv(args.work + '/mutants.tsv')
            if (int(m['id']) in args.ids if args.ids else m['id'] not in had and m['id'] not in judged)]
    lock = threading.Lock()

    def work(number):
        judge = Judge(args, number)
        while True:
            with lock:
                if not todo:
                    return
                m = todo.pop(0)
            v = judge.judge(m)
            with lock:
                write_tsv(out, VERDICTS, [{'id': m['id'], **v}], 'a')
                print('%4s %-34s %-18s %-10s %-34s %s' % (m['id'], m['file'].split('/')[-1] + ':' + m['line'], m['kind'],
                                                          v['verdict'], v['by'], v['said'][:80]), flush=True)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(args.trees))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def group(args):
    """Survivors are tried again together, with all tests that reach one of them: where a test fails, it is tried with
    halves of them until it is known who is to blame, and goes on without him."""
    out = args.work + '/verdicts.tsv'
    verdicts = {v['id']: v for v in read_tsv(out)}
    judged = {j['id'] for j in read_tsv(args.work + '/judged.tsv') if j['verdict'] == 'equivalent'}
    args.quick, args.tap_seconds = False, 1e9
    judge = Judge(args, 0)
    alive, passed = [], set()
    for m in read_tsv(args.work + '/mutants.tsv'):
        v = verdicts.get(m['id'])
        if v and v['verdict'] == 'survived' and m['id'] not in judged and (not args.ids or int(m['id']) in args.ids):
            if any(m['file'] == o['file'] and int(m['start']) < max(int(o['end']), int(o['start']) + 1) and
                   int(o['start']) < max(int(m['end']), int(m['start']) + 1) for o in alive):
                print('%s overlaps with another: next time' % m['id'])
            else:
                alive.append(m)
    texts = {f: read(judge.runner.tree, f) for f in {m['file'] for m in alive}}
    reached = {m['id']: {k for _, keys in judge.batches(m, texts[m['file']]) for k in keys} for m in alive}
    print('together: %s' % ' '.join(m['id'] for m in alive), flush=True)

    def fails(some, suite, keys):
        for f in texts:
            text = texts[f]
            for m in sorted((m for m in some if m['file'] == f), key=lambda m: -int(m['start'])):
                text = text[:int(m['start'])] + json.loads(m['after']) + text[int(m['end']):]
            if text != read(judge.runner.tree, f):
                judge.put(f, text)
        problem = judge.runner.build()
        if problem:
            raise SystemExit(problem)
        judge.runner.install()
        return judge.runner.run(suite, [judge.tests[k] for k in keys])[1:]

    def blame(some, suite, key):
        """The one of them, together with whom the test fails, with whom it fails alone; what it says"""
        while len(some) > 1:
            half = some[:len(some) // 2]
            some = half if fails(half, suite, [key])[0] else some[len(half):]
        failed, said = fails(some, suite, [key])
        return (some[0], said) if failed else (None, '')

    todo = []
    for suite in args.suites:
        keys = [k for k in judge.tests if k.startswith(suite + '/')]
        todo += [(suite, [k]) for k in keys] if suite == 'tap' else [(suite, keys)]
    for suite, keys in todo:
        tried = set()
        while alive:
            keys = [k for k in keys if any(k in reached[m['id']] for m in alive)]
            if not keys:
                break
            failed, said = fails(alive, suite, keys)
            print('%-34s %2d mutants: %s' % (keys[0] if len(keys) == 1 else suite, len(alive), failed or 'passes'), flush=True)
            if failed is None or failed not in keys:
                passed |= set(keys) if failed is None else set()
                break
            passed |= set(keys[:keys.index(failed)])
            keys = keys[keys.index(failed):]
            m, said = blame([m for m in alive if failed in reached[m['id']]] or alive, suite, failed)
            if m is not None:
                alive.remove(m)
                write_tsv(out, VERDICTS, [{'id': m['id'], 'verdict': 'noticed', 'by': failed, 'said': said, 'tests': len(passed)}], 'a')
                print('%4s %-34s %-18s noticed    %-34s %s' % (m['id'], m['file'].split('/')[-1] + ':' + m['line'], m['kind'],
                                                              failed, said[:80]), flush=True)
            elif failed in tried:
                keys.remove(failed)
            tried.add(failed)
    for m in alive:
        write_tsv(out, VERDICTS, [{'id': m['id'], 'verdict': 'survived', 'by': '', 'said': '', 'tests': len(passed & reached[m['id']])}], 'a')


def report(args):
    """Noticed of those that change behaviour, per room and kind; then those that were not"""
    verdicts = {v['id']: v for v in read_tsv(args.work + '/verdicts.tsv')}
    judged = {j['id']: j for j in read_tsv(args.work + '/judged.tsv')}
    columns = ['compile', 'regress', 'isolation', 'tap', 'same code', 'equivalent', 'survived']
    scores, left = collections.defaultdict(collections.Counter), []
    for m in read_tsv(args.work + '/mutants.tsv'):
        v, j = verdicts.get(m['id']), judged.get(m['id'])
        if v is None:
            continue
        result = v['verdict']
        if result == 'noticed':
            result = v['by'].split('/')[0]
        elif result == 'survived':
            result = 'equivalent' if j and j['verdict'] == 'equivalent' else 'survived'
            if result == 'survived':
                left.append((m, v, j['reason'] if j else ''))
        for key in (m['room'], 'kind: ' + m['kind'], 'all'):
            scores[key][result] += 1
    print('%-26s %5s %s  noticed' % ('', 'all', ' '.join('%10s' % c for c in columns)))
    for key in sorted(scores, key=lambda k: (k == 'all', k.startswith('kind'), k)):
        c = scores[key]
        noticed = sum(c[k] for k in columns[:4])
        print('%-26s %5d %s %7.1f%%' % (key, sum(c.values()), ' '.join('%10d' % c[k] for k in columns),
                                        100 * noticed / max(noticed + c['survived'], 1)))
    for m, v, reason in left:
        print('not noticed by %s tests: %s %s:%s %s, %s: %s -> %s %s' % (v['tests'], m['id'], m['file'], m['line'], m['function'],
                                                                      m['kind'], m['before'], m['after'], reason))


def main():
    def words(s):
        return s.split(',')
    p = argparse.ArgumentParser()
    p.add_argument('command', choices=['coverage', 'change', 'draw', 'run', 'group', 'show', 'report'])
    p.add_argument('--work', required=True, help='what is kept: coverage.json, mutants.tsv, verdicts.tsv, judged.tsv')
    p.add_argument('--scratch', help='what is not')
    p.add_argument('--trees', type=words, required=True)
    p.add_argument('--pg-configs', type=words, default=[])
    p.add_argument('--diff')
    p.add_argument('--suites', type=words, default=SUITES)
    p.add_argument('--tests', default='.', help='regular expression of the tests that are run')
    p.add_argument('--rooms', type=words, default=[])
    p.add_argument('--skip', type=words, default=['citus'], help='rooms that are left out')
    p.add_argument('--number', type=int, default=40)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--tap-seconds', type=float, default=300, help='of TAP files for one mutant')
    p.add_argument('--quick', action='store_true', help='of regress and isolation only the tests that are about the file')
    p.add_argument('--ids', type=lambda s: [int(x) for x in s.split(',')])
    p.add_argument('--details', action='store_true')
    args = p.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end_tests)
    args.anew = args.command in ('change', 'draw')
    kept = args.work + '/coverage.json'
    if args.command == 'coverage':
        measure(Runner(args.trees[0], args.pg_configs[0], args.scratch + '/tmp0'), kept, args.suites, args.tests)
    args.coverage = {'tests': {}, 'files': {}}
    if os.path.exists(kept):
        with open(kept) as f:
            args.coverage = json.load(f)
    if args.command == 'coverage':
        table(args.coverage, args.skip, args.details)
        return
    if args.command in ('change', 'draw'):
        choose(args)
    if args.command in ('change', 'draw', 'run'):
        run(args)
    if args.command == 'group':
        group(args)
    if args.command == 'show':
        show(args)
    else:
        report(args)


if __name__ == '__main__':
    main()
