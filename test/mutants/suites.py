"""
suites.py - builds a tree, installs it into a private server, and runs tests of it
"""
import glob
import hashlib
import os
import re
import signal
import subprocess
import time

SUITES = ['regress', 'isolation', 'tap']
NEEDED = ['install', 'configuration']       # of regress: by all others, and by ddl and uninstall

running = set()         # process groups of tests


def end_tests(number, frame):
    """Handler of signals: tests have sessions of their own, and would go on"""
    for pid in running:
        os.killpg(pid, signal.SIGTERM)
    os._exit(128 + number)


def make_list(tree, name):
    """A list of the Makefile: REGRESS or ISOLATION"""
    with open(os.path.join(tree, 'Makefile')) as f:
        text = f.read().replace('\\\n', ' ')
    return re.search(r'^%s = (.*)$' % name, text, re.M).group(1).split()


def all_tests(tree):
    """Each test by its key, suite/name, in the order in which a suite runs them: {key: what make calls it}"""
    tests = {'regress/' + t: t for t in make_list(tree, 'REGRESS')}
    tests.update({'isolation/' + t: t for t in make_list(tree, 'ISOLATION')})
    for f in sorted(glob.glob(os.path.join(tree, 'test/t/*.pl'))):
        tests['tap/' + os.path.basename(f)] = os.path.relpath(f, tree)
    return tests


class Runner:
    """A tree and a server of its own; what it starts is stopped when a test has failed"""

    def __init__(self, tree, pg_config, tmp):
        self.tree = os.path.abspath(tree)
        self.pg_config = os.path.abspath(pg_config)
        self.bindir = self.ask('--bindir')
        self.pkglibdir = self.ask('--pkglibdir')
        self.tmp = os.path.abspath(tmp)
        self.sums = {}          # of objects: when they were built, and what they do
        os.makedirs(self.tmp, exist_ok=True)

    def ask(self, what):
        return subprocess.run([self.pg_config, what], capture_output=True, text=True, check=True).stdout.strip()

    def env(self, more=None):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith('PG') and k not in ('MAKEFLAGS', 'MAKELEVEL', 'MFLAGS')}
        env.update(LC_ALL='C.UTF-8', TZ='UTC', TMPDIR=self.tmp, PATH=self.bindir + ':' + env['PATH'],
                   PGISOLATIONTIMEOUT='60', **(more or {}))
        return env

    def make(self, *words):
        return ['make', '-s', 'with_llvm=no', 'PG_CONFIG=' + self.pg_config, *words]

    def build(self, copt=''):
        """What the compiler says if it fails, or nothing"""
        r = subprocess.run(self.make('COPT=' + copt), cwd=self.tree, env=self.env(), capture_output=True, text=True)
        if r.returncode == 0:
            return ''
        return (re.findall(r'error: .*', r.stderr) or [r.stderr.strip() or 'make failed'])[0]

    def install(self):
        """All of it once; then only the library"""
        target = os.path.join(self.pkglibdir, 'ttl.so')
        if not os.path.exists(target):
            subprocess.run(self.make('install'), cwd=self.tree, env=self.env(), stdout=subprocess.DEVNULL, check=True)
        with open(os.path.join(self.tree, 'ttl.so'), 'rb') as f:
            data = f.read()
        with open(target + '.new', 'wb') as f:
            f.write(data)
        os.chmod(target + '.new', 0o755)
        os.rename(target + '.new', target)

    def object_code(self):
        """What the objects do, whatever their names and line tables are"""
        sums = {}
        for o in glob.glob(os.path.join(self.tree, 'src', '**', '*.o'), recursive=True):
            at = os.stat(o).st_mtime_ns
            if self.sums.get(o, (0, ''))[0] != at:
                subprocess.run(['objcopy', '--strip-debug', o, o + '.bare'], check=True)
                with open(o + '.bare', 'rb') as f:
                    self.sums[o] = at, hashlib.sha1(f.read()).hexdigest()
                os.remove(o + '.bare')
            sums[o] = self.sums[o][1]
        return sums

    def stop_servers(self):
        for where in ('tmp_regress', 'tmp_isolation', 'tmp_check'):
            for f in glob.glob(os.path.join(self.tree, where, '**', 'postmaster.pid'), recursive=True):
                try:
                    with open(f) as lines:
                        pid = int(lines.readline())
                    if os.readlink('/proc/%d/exe' % pid).startswith(self.bindir):
                        os.kill(pid, signal.SIGQUIT)
                        for _ in range(100):
                            os.kill(pid, 0)
                            time.sleep(0.1)
                except (OSError, ValueError):
                    pass

    def first_failure_of_tap(self):
        """prove tells at the end what a file writes to its log: the first failure there, and when it has last grown"""
        failed, grown = None, 0
        for name in glob.glob(os.path.join(self.tree, 'tmp_check/log/regress_log_*')):
            with open(name, errors='replace') as f:
                m = re.search(r'^(\[.*?\]\(.*?\) )?(not ok (?!.*# TODO).*)', f.read(), re.M)
            failed = failed or (m and m.group(2))
            grown = max(grown, os.path.getmtime(name))
        return failed, grown

    def execute(self, command, silence, env, bad):
        """Runs it until a line matches bad, or until it says nothing for so many seconds: (bad line or None, log)"""
        heard = time.time()
        p = subprocess.Popen(command, cwd=self.tree, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
        running.add(p.pid)
        os.set_blocking(p.stdout.fileno(), False)
        found, log, rest, ended = None, [], '', False
        while found is None and not ended:
            try:
                chunk = os.read(p.stdout.fileno(), 65536).decode(errors='replace')
                ended = chunk == ''
            except BlockingIOError:
                chunk = ''
                time.sleep(0.05)
                found, grown = self.first_failure_of_tap()
                heard = max(heard, grown)
            heard = time.time() if chunk else heard
            lines = (rest + chunk).split('\n')
            rest = lines.pop()
            log += lines
            found = found or next((line.strip() for line in lines if re.search(bad, line)), None)
            if found is None and time.time() - heard > silence:
                found = 'HANGS: nothing for %d s' % silence
        if found is not None:
            self.stop_servers()
            try:
                os.killpg(p.pid, signal.SIGTERM)
                p.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        p.wait()
        running.discard(p.pid)
        p.stdout.close()
        if found is None and p.returncode != 0:
            found = 'exit status %d' % p.returncode
            self.stop_servers()
        return found, log

    def run(self, suite, names, silence=100, more_env=None):
        """Some tests of one suite, by what make calls them: (seconds, key of the one that failed or None, what it said)"""
        diffs = {'regress': 'regression.diffs', 'isolation': 'output_iso/regression.diffs', 'tap': None}[suite]
        if suite == 'tap':
            words = self.make('tap-check', 'PROVE_TESTS=' + ' '.join(names), 'PROVE_FLAGS=--verbose')
            bad = r'^not ok (?!.*# TODO)|^Bail out|Dubious|^Result: FAIL'
        else:
            if suite == 'regress':
                names = [n for n in NEEDED if n not in names and (n == 'install' or {'ddl', 'uninstall'} & set(names))] + names
            words = self.make(suite + '-check', '%s=%s' % (suite.upper(), ' '.join(names)))
            bad = r'\.\.\. FAILED|^pg_(isolation_)?regress: |could not'
        for f in glob.glob(os.path.join(self.tree, 'tmp_check/log/regress_log_*')) + [os.path.join(self.tree, diffs or '-')]:
            if os.path.exists(f):
                os.remove(f)
        start = time.time()
        found, log = self.execute(words, silence, self.env(more_env), bad)
        seconds = time.time() - start
        if found is None:
            told = [int(n) for n in re.findall(r'\.\.\. ok +(\d+) ms', '\n'.join(log))]
            return told[-1] / 1000 if len(names) <= 2 and told else seconds, None, ''
        said = found
        if suite == 'tap':
            which = os.path.basename(names[0])
        else:
            m = re.search(r'test (\S+) +\.\.\. FAILED', found)
            which = m.group(1) if m else names[-1]
            if os.path.exists(os.path.join(self.tree, diffs)):
                with open(os.path.join(self.tree, diffs), errors='replace') as f:
                    said = ' | '.join([line.strip() for line in f if re.match(r'[-+](?![-+])', line)][:6]) or said
        return seconds, suite + '/' + which, re.sub(r'\s+', ' ', said)[:300]
