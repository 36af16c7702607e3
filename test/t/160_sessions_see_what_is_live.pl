# Three sessions that take steps by chance - transactions of each isolation level, savepoints, cursors, changes
# of policy, VACUUM FULL, REINDEX - find what is live, change nothing else, and lose nothing.
#
#   MODEL_SEED    where chance begins (1)
#   MODEL_STEPS   how many steps (3000)
#   MODEL_SHOWN   how many violations are shown, each with the statements before it (3)
#
# See test/model: Model.pm says how it is done, Steps.pm makes the steps, Oracle.pm says what is true.
# Time and locks make each run another, so a seed leads to the same steps, and not always to the same answers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/..", "$FindBin::RealBin/../lib";

use Test::More;
use TtlNode;
use equivalence::Random;
use model::Model;

use constant SETTLE => 200;     # steps between comparisons of what is stored
use constant EPOCH  => 1000;    # steps between new tables

my $seed  = $ENV{MODEL_SEED}  // 1;
my $steps = $ENV{MODEL_STEPS} // 3000;
my $shown = $ENV{MODEL_SHOWN} // 3;

my $node = TtlNode->start_new('model', <<'CONF');
ttl.reaper = off
ttl.naptime = 10ms
deadlock_timeout = 10ms
jit = off
log_statement = none
log_min_messages = fatal
CONF
$node->safe_psql('postgres', 'CREATE EXTENSION ttl');

my $model = model::Model->new($node);

seed($seed);
note "seed $seed, $steps steps";
is(eval { run($steps); 'whole' } // join("\n", @{ $model->{log} }, $@), 'whole', 'all steps are taken');

my @wrong = @{ $model->{wrong} };
note join(', ', map { "$_ $model->{count}{$_}" } sort keys %{ $model->{count} });
note 'errors: ' . join(', ', map { "$_ $model->{codes}{$_}" } sort keys %{ $model->{codes} });
for my $violation (@wrong[ 0 .. (@wrong > $shown ? $shown : @wrong) - 1 ])
{
	diag("seed $seed, step $violation->{step}, session $violation->{session}:\n"
		  . join("\n", @{ $violation->{log} }, @{ $violation->{lines} }));
}
is(scalar @wrong, 0, 'sessions find what is live, and change nothing else');
cmp_ok($model->{count}{hidden} // 0, '>', $steps / 20, 'much of what they read has expired');

$model->stop;

# Does it notice?  With expired rows to be seen:
$model = model::Model->new($node, '-c ttl.show_expired=on');
run(100) for 1 .. 5;
cmp_ok(scalar @{ $model->{wrong} }, '>', 5, 'expired rows that are shown would have been noticed');

$model->stop;
$node->stop;
done_testing();

sub run
{
	my ($steps) = @_;

	for my $step (1 .. $steps)
	{
		$model->begin_epoch if ($step - 1) % EPOCH == 0;
		$model->step($step);
		$model->settle if $step % SETTLE == 0 || $step == $steps;
	}
	return;
}
