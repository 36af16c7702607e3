# Oracle.pm - which versions of rows a statement may, must and must not have found
#
# A version is [ id, v, prev, ts, ttl ] as the shadow table has it: v is unique among all versions,
# prev the v of the version that an UPDATE has replaced; ts and a deadline are microseconds since 1970.
# A clock is [ earliest, latest ]; a default TTL is undef, -1 or seconds.
package model::Oracle;

use strict;
use warnings;

use List::Util qw(max min);
use Exporter 'import';
our @EXPORT = qw(instant expiry has_expired may_have_expired check_found);

use constant NEVER => 9e18;

# An instant in SQL
sub instant
{
	my $instant = shift;
	return "timestamptz 'epoch' + interval '1 microsecond' * $instant";
}

# The instant at which a version expires.
sub expiry
{
	my ($version, $default, $deadline) = @_;
	my (undef, undef, undef, $ts, $ttl) = @$version;

	return NEVER if !defined $default;
	return $ttl if $deadline && defined $ttl;
	$ttl //= $default;
	return $ttl == -1 ? NEVER : $ts + $ttl * 1000000;
}

# By each clock and policy that it may have had
sub has_expired
{
	my ($version, $clock, $policies, $deadline) = @_;
	return !grep { expiry($version, $_, $deadline) > $clock->[0] } @$policies;
}

# By one at least
sub may_have_expired
{
	my ($version, $clock, $policies, $deadline) = @_;
	return !!grep { expiry($version, $_, $deadline) <= $clock->[1] } @$policies;
}

# What is wrong with what was found, as a list of lines.  $found: the v of each row; $stored: the versions
# that are there; $gone->{v}: those of which the shadow isn't sure; $partly: not all had to be found.
sub check_found
{
	my ($found, $stored, $clock, $policies, $deadline, $gone, $partly) = @_;
	my (%count, %known, @wrong);
	my $text = sub { join('|', map { $_ // '~' } @{ $_[0] }) . ' expires ' . join(' or ', map { expiry($_[0], $_, $deadline) } @$policies) };

	$count{$_}++ for @$found;
	$known{ $_->[1] } = $_ for @$stored;
	for my $v (sort keys %count)
	{
		push @wrong, "version $v was found $count{$v} times" if $count{$v} > 1;
		push @wrong, "version $v was found, and is not there" if !$known{$v} && !$gone->{$v};
	}
	for my $version (@$stored)
	{
		my $v = $version->[1];

		push @wrong, 'has expired, and was found: ' . $text->($version)
		  if $count{$v} && has_expired($version, $clock, $policies, $deadline);
		push @wrong, 'is live, and was not found: ' . $text->($version)
		  if !$partly && !$count{$v} && !$gone->{$v} && !may_have_expired($version, $clock, $policies, $deadline);
	}
	# one clock for all rows
	if (@$policies == 1 && !$partly)
	{
		my @hidden = map { expiry($_, $policies->[0], $deadline) } grep { !$count{ $_->[1] } && !$gone->{ $_->[1] } } @$stored;
		my @shown  = map { expiry($_, $policies->[0], $deadline) } grep { $count{ $_->[1] } } @$stored;

		push @wrong, 'one that expires at ' . min(@shown) . ' was found, and one that expires at ' . max(@hidden) . ' was not'
		  if @hidden && @shown && max(@hidden) >= min(@shown);
	}
	return @wrong;
}

1;
