# test/demo plays, in a terminal of 100 columns and in a log.
use strict;
use warnings;
use utf8;

use PostgreSQL::Test::Utils;
use Test::More;

my $demo = 'test/demo --installed';
my ($film, $log, $err) = ('', '', '');

# The film needs a pseudo-terminal, which a chroot may lack.
my $said = `script -qec true /dev/null 2>&1 < /dev/null`;
my $reason = $? == 0 ? undef : 'no pseudo-terminal: ' . ($said =~ /(.*\S)/)[0];

# Both at once: they sleep most of the time.
my @players = (IPC::Run::start([ 'sh', '-c', $demo ], '<', \undef, '>', \$log, '2>', \$err));
push @players,
  IPC::Run::start([ 'script', '-qec', "stty rows 40 columns 100; exec env TERM=xterm-256color $demo", '/dev/null' ],
	'<', \undef, '>', \$film, '2>&1')
  if !defined $reason;
for my $player (@players)
{
	ok($player->finish, 'it comes to a good end') or diag("$log$err$film");
}
utf8::decode($_) for $log, $film;
$film =~ s/\r//g;

sub story
{
	my ($text, $how) = @_;

	like($text, qr/^ a  \| Ann .*^ b  \| Bob .*^ a  \| Anna .*^UPDATE 0\n.*^ b  \| Barbara \| +3[56]\d\d$/ms, "$how: a row is renewed, another vanishes, its key is free");
	like($text, qr/Filter: ttl\.is_live\('sessions'::regclass, _ts, ttl\)/, "$how: the filter");
	my ($done) = $text =~ /^pgbench: ([\d,]+) transactions, [\d,]+ a second; 0 failed\.$/m;
	my ($deleted) = $text =~ /^ pgbench_history \| +(\d+) /m;
	is($deleted, ($done // '') =~ tr/,//dr, "$how: pgbench's rows are deleted, all of them");
	my @wide = grep { length > 100 } split(/\n/, $text);
	is("@wide", '', "$how: no line is wider than 100 columns");
	return;
}

story($log, 'log');
unlike($log, qr/\e/, 'log: plain');
like($log, qr/^ +second +rows visible +rows stored +rows deleted +oldest expired \(s\)$(?:\n +\d+ +\d+ +\d+ +\d+ +\d+(?:\.\d)?$){10}/m, 'log: a line for each second');

SKIP:
{
	skip $reason, 1 if defined $reason;
	my @hidden = $film =~ /\e\[\?25([lh])/g;
	is($hidden[0], 'l', 'film: the cursor is out of the way');
	is($hidden[-1], 'h', 'film: and comes back');
	my $frames = () = $film =~ /\e\[17A/g;
	cmp_ok($frames, '>', 10, "film: the chart moves ($frames frames)");
	(my $plain = $film) =~ s/\e\[[?\d;]*[A-Za-z]//g;
	like($film, qr/\e\[32m━ visible  [\d,]+ *\e\[33m━ stored  [\d,]+ *\e\[31m━ deleted  [\d,]+ *\e\[0m/, 'film: in colours');
	like($plain, qr/^ *[\d,]+ │[ \x{2800}-\x{28ff}]*[\x{2801}-\x{28ff}]/m, 'film: with lines');
	story($plain, 'film');
}

done_testing();
