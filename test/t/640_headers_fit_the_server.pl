# Headers of a later minor release than the server's: make says so, and test/lib.sh, which test/check and test/demo share,
# takes headers of the server's release, or a server of the headers'; it upgrades none that is installed.
#
# The server, apt and dpkg are stand-ins: scripts that print what the real ones would, and write down how they were called.
use strict;
use warnings;

use Cwd qw(realpath);
use FindBin;

use PostgreSQL::Test::Utils;
use Test::More;

my $top = realpath("$FindBin::RealBin/../..");
my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my $work = realpath(PostgreSQL::Test::Utils::tempdir());
delete @ENV{ 'MAKEFLAGS', 'MAKELEVEL', 'MFLAGS', 'LD_LIBRARY_PATH' };

plan(skip_all => 'no sources here') if !-e "$top/Makefile";

sub script
{
	my ($file, $text) = @_;

	system('mkdir', '-p', $file =~ s,/[^/]*$,,r) == 0 or die;
	unlink $file;
	append_to_file($file, "#!/bin/sh\n$text");
	chmod 0755, $file;
	return;
}

sub postgres { return "echo 'postgres (PostgreSQL) $_[0] (Debian $_[0]-0+deb12u1)'\n"; }
sub header   { return "#define PG_VERSION \"$_[0] (Debian $_[0]-0+deb12u1)\"\n"; }

#
# make: a server of any release beside the headers that are here
#

chomp(my $include = `$pg_config --includedir-server`);
my ($headers) = slurp_file("$include/pg_config.h") =~ /^#define PG_VERSION "(\d+)\.(?:\d+)/m;

SKIP:
{
	skip 'the headers are of no release', 4 if !defined $headers;

	my ($release) = slurp_file("$include/pg_config.h") =~ /^#define PG_VERSION "([^ "]*)/m;
	script("$work/pg_config", qq{[ "\$*" = --bindir ] && echo '$work/bin' || exec $pg_config "\$@"\n});

	# make's lines about the releases, for a server of this one
	my $says = sub {
		my ($server) = @_;

		defined $server ? script("$work/bin/postgres", postgres($server)) : unlink "$work/bin/postgres";
		return join '', grep { /PostgreSQL/ } `make -n -C $top clean PG_CONFIG=$work/pg_config 2>&1`;
	};
	like($says->("$headers.0"), qr/^Makefile:\d+: the headers are of PostgreSQL \Q$release\E, the server is $headers\.0: upgrade the server, [^\n]*\n\z/,
		'make says in a line that the headers are newer than the server');
	is($says->($release), '', '... and nothing if they are of one release');
	is($says->("$headers.999"), '', '... or the server is newer');
	is($says->(undef), '', '... or there is none here, as where packages are built');
}

#
# test/lib.sh: Debian, as far as it looks at it
#

my $root = "$work/usr/lib/postgresql/15";
my $server_dev = "$work/usr/include/postgresql/15/server";

script("$root/bin/pg_config", <<'END');
root=${0%/usr/lib/*}
case $1 in
	--bindir) echo $root/usr/lib/postgresql/15/bin ;;
	--pkglibdir) echo $root/usr/lib/postgresql/15/lib ;;
	--sharedir) echo $root/usr/share/postgresql/15 ;;
	--includedir-server) echo $root/usr/include/postgresql/15/server ;;
esac
END
system("mkdir -p $root/lib $work/usr/share/postgresql/15 $work/debs") == 0 or die;

# What "apt-get download" of that version brings
sub has_package
{
	my ($name, $release) = @_;
	my $deb = "$work/debs/${name}_$release";

	script("$deb$work/usr/lib/postgresql/15/bin/postgres", postgres($release)) if $name eq 'postgresql-15';
	script("$deb$work/usr/lib/x86_64-linux-gnu/libpq.so.5", '') if $name eq 'libpq5';
	if ($name eq 'postgresql-server-dev-15')
	{
		script("$deb$work/usr/include/postgresql/15/server/$_", header($release)) for 'postgres.h', 'pg_config.h';
	}
	system('mkdir', '-p', $deb) == 0 or die;
	return;
}

# A directory is the .deb, of files below this test's own root; "apt-get download NAME=RELEASE-*" finds that release, "apt-get download NAME" the last.
script("$work/stand-ins/apt-get", <<"END");
echo "\$*" >> $work/calls
case "\$*" in
	*download*)
		for p; do :; done
		case \$p in
			*=*) r=\${p#*=}; d=$work/debs/\${p%%=*}_\${r%-*} ;;
			*) d=\$(ls -d $work/debs/\${p}_* | sort -V | tail -n 1) ;;
		esac
		[ -d "\$d" ] || exit 100
		echo "\$d" > "\${d##*/}.deb" ;;
	*' -s '*) echo 'Inst wanted (1.0 Debian [amd64])'; echo 'Inst libc6 [2.36-1] (2.36-2 Debian [amd64])' ;;
esac
END
script("$work/stand-ins/dpkg-deb", 'mkdir -p "$3" && cp -a "$(cat "$2")/." "$3"' . "\n");
script("$work/stand-ins/dpkg-query", <<'END');
case "$*" in
	*Version*) printf 'installed postgresql-15 15.18-0+deb12u1\ninstalled postgresql-15-cron 1.4.2-2\nconfig-files postgresql-13 13.1-1\n' ;;
	*wanted*) ;;
	*) echo installed ;;
esac
END
script("$work/stand-ins/id", 'echo 0');

# What test/lib.sh's functions print there, and in $calls how apt was called
my $calls;

sub lib
{
	my ($script) = @_;

	unlink "$work/calls";
	append_to_file("$work/script", "set -- ''; . $top/test/lib.sh; PATH=$work/stand-ins:\$PATH; WORK=$work/to; PG_CONFIG=$root/bin/pg_config\n$script");
	my $says = `bash $work/script 2>&1`;
	unlink "$work/script";
	$calls = -e "$work/calls" ? slurp_file("$work/calls") : '';
	return $says;
}

# What the copy is of, for a server and headers (undef: none) that are installed, when apt has these packages
sub copied
{
	my ($server, $installed, @packages) = @_;

	system("rm -rf $work/debs $work/to $server_dev; mkdir -p $work/debs $work/to") == 0 or die;
	script("$root/bin/postgres", postgres($server));
	if ($installed)
	{
		script("$server_dev/$_", header($installed)) for 'postgres.h', 'pg_config.h';
	}
	has_package(@$_) for @packages;
	return (split /\n/, lib('copy_server; echo "$(release_of_server) $(release_of_headers) ${LD_LIBRARY_PATH:+and its libpq}"'))[-1];
}

sub all_of { return map { [ $_, $_[0] ] } 'postgresql-server-dev-15', 'postgresql-15', 'postgresql-client-15', 'libpq5'; }

SKIP:
{
	skip 'no bash', 9 if system('bash --version > /dev/null 2>&1') != 0;

	is(copied('15.18', undef, all_of('15.20'), all_of('15.18')), '15.18 15.18 ', 'headers of the release that is installed, while apt has them');
	is(copied('15.18', undef, all_of('15.20')), '15.20 15.20 and its libpq', '... then the newest, and a server of that release');
	unlike($calls, qr/install/, '... unpacked, not installed');
	is(copied('15.18', '15.20', all_of('15.20')), '15.20 15.20 and its libpq', '... which newer headers that are installed get, too');
	like(copied('15.18', '15.20', all_of('15.19')), qr/apt has no server of 15\.20: install /, '... or an error that tells the reason');
	is(copied('15.20', '15.20'), '15.20 15.20 ', 'one release of both: nothing is fetched');
	is(copied('15.20', '15.18'), '15.20 15.18 ', '... nor with older headers');

	script("$work/stand-ins/apt-get", "echo \"\$*\" >> $work/calls\ncase \"\$*\" in\n*' -s '*) printf 'Inst wanted (1.0 Debian)\\nInst libc6 [2.36-1] (2.36-2 Debian)\\n' ;;\n*install*) cat $work/to/preferences ;;\nesac\n");
	my $says = lib('CHOSEN=$PG_CONFIG; MORE=wanted; no_main_cluster() { "$@"; }; need_packages; cat "$WORK/apt.log"');
	like($says, qr/installing wanted\n.*which upgrades libc6\n/, 'packages that upgrade others: it says so');
	like($says, qr/^Package: postgresql-15\nPin: version 15\.18-0\+deb12u1\nPin-Priority: 1001\n/m, '... but the server stays what it is');
}

done_testing();
