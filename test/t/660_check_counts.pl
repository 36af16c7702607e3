# What test/check says at its end: test/tally counts what suites have said.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

my $log = PostgreSQL::Test::Utils::tempdir() . '/suite.tap';

sub tally_is
{
	my ($name, $text, $status, @wanted) = @_;

	unlink $log;
	append_to_file($log, $text);
	my @got = split /\n/, `test/tally $log`;
	is($? >> 8, $status, "$name: exit status");
	is_deeply(\@got, \@wanted, '... and lines');
	return;
}

tally_is('pg_regress', <<'END', 0, '2 passed, 0 failed, 0 skipped');
ok 1         - install                                  1234 ms
ok 2         - keys                                      234 ms
1..2
# All 2 tests passed.
END
tally_is('pg_regress, with one that fails', <<'END', 1, 'failed: keys', '1 passed, 1 failed, 0 skipped');
ok 1         - install                                  1234 ms
not ok 2     - keys                                      234 ms
1..2
# 1 of 2 tests failed.
END
tally_is('pg_regress before 16', <<'END', 1, 'failed: keys', 'failed: epq', '1 passed, 2 failed, 0 skipped');
test install                      ... ok         1234 ms
test keys                         ... FAILED      234 ms
     epq                          ... FAILED (test process exited with exit code 1)       12 ms
END
my @lines = (
	'skipped: test/t/1.pl: no tool',
	'skipped: test/t/2.pl: inner',
	'skipped: test/t/2.pl: no other (2 tests)',
	'failed: test/t/2.pl: z',
	'failed: test/t/3.pl: broke off',
	'3 passed, 2 failed, 4 skipped');
tally_is('prove', <<'END', 1, @lines);
test/t/1.pl .. skipped: no tool
test/t/2.pl ..
ok 1 - x
ok 2 # skip no other
ok 3 # skip no other
# Subtest: y
    1..0 # SKIP inner
ok 4 # skip inner
not ok 5 - t # TODO later
ok 6 - with \# skip in its name
not ok 7 - z
1..7
test/t/3.pl ..
ok 1 - x
Dubious, test returned 255 (wstat 65280, 0xff00)
test/t/2.pl (Wstat: 256 (exited 1) Tests: 7 Failed: 1)
test/t/3.pl    (Wstat: 65280 (exited 255) Tests: 1 Failed: 0)
END
tally_is('a suite that has nothing to run it', "1..0 # SKIP isolation tests: no pg_isolation_regress\n", 0,
	'skipped: isolation tests: no pg_isolation_regress', '0 passed, 0 failed, 1 skipped');

done_testing();
