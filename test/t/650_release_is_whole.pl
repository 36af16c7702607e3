# What is released: its versions agree, META.json is as PGXN wants it, the archive
# holds what is needed, and what is in it can be built in another directory and
# installed elsewhere.
use strict;
use warnings;

use Cwd qw(realpath);
use FindBin;
use JSON::PP;

use PostgreSQL::Test::Utils;
use Test::More;

my $top = realpath("$FindBin::RealBin/../..");
my $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my $work = PostgreSQL::Test::Utils::tempdir();
my %text = map { $_ => slurp_file("$top/$_") } 'META.json', 'CHANGELOG.md', 'debian/changelog', 'src/ttl.h';
my $meta = decode_json($text{'META.json'});
delete @ENV{ 'MAKEFLAGS', 'MAKELEVEL', 'MFLAGS', 'DESTDIR' };

#
# Versions
#

my $release = $meta->{version};
like($release, qr/^\d+\.\d+\.\d+$/, "META.json has a semantic version");
is($meta->{provides}{ttl}{version}, $release, '... which its extension has, too');
is(($text{'src/ttl.h'} =~ /^#define TTL_VERSION\s+"(.*)"$/m)[0], $release, '... and the library');
is(($text{'debian/changelog'} =~ /^postgresql-ttl \((.*)-\d+\)/)[0], $release, q{... and Debian's package});
my ($logged) = $text{'CHANGELOG.md'} =~ /^## \[(.*?)\]/m;
ok($logged eq 'Unreleased' || $logged eq $release, '... and CHANGELOG.md, if it is released') or diag($logged);
is($meta->{release_status}, $logged eq 'Unreleased' ? 'testing' : 'stable', '... as META.json says, too');

my ($source, $package) = split /^(?=Package:)/m, slurp_file("$top/debian/control.in");
is(slurp_file("$top/debian/control"), $source . join("\n", map { $package =~ s/PGVERSION/$_/gr } split ' ', slurp_file("$top/debian/pgversions")),
	'debian/control has a package of each version in debian/pgversions');
like((run_command([ 'sh', "$top/debian/postinst.in", 'configure', '' ]))[0], qr/^ttl: to use it, set shared_preload_libraries = 'ttl' /, 'its first installation says how to use it');
like((run_command([ 'sh', "$top/debian/postinst.in", 'configure', '1.0.0-1' ]))[0], qr/^ttl: restart [^\n]*\z/, '... a later one to restart');

# Clusters, and what they load, by stand-ins for Debian's programs
mkdir "$work/debian";
append_to_file("$work/debian/pg_lsclusters", "#!/bin/sh\nprintf '%s\\n' 'PGVERSION main 5432 online postgres /d /l' 'PGVERSION other 5433 down joe /d /l' 'PGVERSION broken 5434 down joe /d /l' '14 main 5435 online postgres /d /l'\n");
append_to_file("$work/debian/runuser", qq{#!/bin/sh\ncase "\$*" in *postgres\\ *PGVERSION/main) echo 'citus, "ttl"' ;; *joe\\ *PGVERSION/other) echo 'subttl, \$libdir/throttle' ;; *) exit 1 ;; esac\n});
chmod 0755, glob("$work/debian/*");
{
	local $ENV{PATH} = "$work/debian:$ENV{PATH}";

	like((run_command([ 'sh', "$top/debian/prerm.in", 'remove' ]))[0], qr/^ttl: PostgreSQL PGVERSION main \(online\) loads ttl, and will not start any more: [^\n]*\n[^\n]*\z/,
		'... its removal which servers will not start any more');
	is((run_command([ 'sh', "$top/debian/prerm.in", 'upgrade', '1.0.0-2' ]))[0], '', '... but no upgrade');
}

#
# META.json, see the PGXN Meta Spec 1.0.0
#

sub is_text { return defined $_[0] && !ref $_[0] && $_[0] =~ /\S/; }

for my $key ('name', 'abstract', 'description', 'generated_by')
{
	ok(is_text($meta->{$key}), "META.json: $key");
}
like($meta->{name}, qr/^[^\s\/\\[:cntrl:]]{2,}$/, '... of which the name can be one');
ok(is_text($meta->{maintainer}), 'META.json: maintainer');
is($meta->{license}, 'postgresql', 'META.json: license');
ok((grep { $meta->{release_status} eq $_ } 'stable', 'testing', 'unstable'), 'META.json: release_status');
is_deeply($meta->{'meta-spec'}, { version => '1.0.0', url => 'https://pgxn.org/meta/spec.txt' }, 'META.json: meta-spec');
is_deeply([ keys %{ $meta->{provides} } ], ['ttl'], 'META.json: provides');
ok(-e "$top/$meta->{provides}{ttl}{$_}", "... whose $_ is there") for 'file', 'docfile';
my $minimum = $meta->{prereqs}{runtime}{requires}{PostgreSQL};
like($minimum, qr/^\d+\.\d+\.\d+$/, 'META.json: the PostgreSQL that is needed');
like(slurp_file("$top/src/compat.h"), qr/^#if PG_VERSION_NUM < ${\ ($minimum =~ s,\..*,,r)}0000$/m, '... as in compat.h');
is(ref $meta->{tags}, 'ARRAY', 'META.json: tags');
is_deeply(
	[ grep { !/^(name|abstract|description|version|maintainer|license|release_status|prereqs|provides|meta-spec|generated_by|tags|no_index|resources|x_\w+)$/i } keys %$meta ],
	[], 'META.json: nothing that the specification has not');

#
# The archive
#

my $git = 'git -c user.name=test -c user.email=test@localhost -c init.defaultBranch=main -c advice.addIgnoredFile=false';
SKIP:
{
	skip 'no git', 9 + ($logged eq 'Unreleased') + ($meta->{release_status} ne 'stable') if system('git --version > /dev/null 2>&1') != 0;

	# git leaves out what it ignores
	mkdir "$work/tree";
	system("cd $top && tar -cf - --exclude=.git --exclude='*.[do]' --exclude='*.so' --exclude='*.bc' --exclude='./tmp_*' --exclude='./results' --exclude='./log' --exclude='./output_iso' --exclude='./regression.*' . | tar -C $work/tree -xf -") == 0 or die;
	system("cd $work/tree && $git init -q && $git add . && $git commit -qm test") == 0 or die;
	command_ok([ 'make', '-s', '-C', "$work/tree", "PG_CONFIG=$pg_config", 'dist' ], 'make dist');
	ok(-s "$work/tree/ttl-$release.zip", '... makes an archive for PGXN');

	# without PostgreSQL
	my @release = ('make', '-s', '-C', "$work/tree", 'PG_CONFIG=true', 'release', 'RELEASE=out');
	my ($changes) = $text{'CHANGELOG.md'} =~ /^## \[\Q$logged\E\][^\n]*\n\n(.*?)\n*(?:^## |\z)/ms;
	my $dated = $text{'CHANGELOG.md'} =~ s/^## \[.*/## [$release] - 2027-01-01/mr . "\n## [0.9.0] - 2026-01-01\n\nold\n";
	if ($logged eq 'Unreleased')
	{
		command_fails_like(\@release, qr/CHANGELOG\.md has no section "\[$release\]/, 'make release refuses what has no date');
	}
	unlink "$work/tree/CHANGELOG.md";
	append_to_file("$work/tree/CHANGELOG.md", $dated);
	if ($meta->{release_status} ne 'stable')
	{
		command_fails_like(\@release, qr/META\.json does not say "stable"/, '... or is for testing');
		unlink "$work/tree/META.json";
		append_to_file("$work/tree/META.json", $text{'META.json'} =~ s/"$meta->{release_status}"/"stable"/r);
	}
	# a script that was released otherwise: by what is merged here, and by what isn't
	my ($script) = map { s,.*/,sql/,r } glob("$top/sql/ttl--*.sql");
	system("cd $work/tree && $git tag v0.9.0 && cp $script script && echo '-- edited' >> $script && $git commit -qm edited $script") == 0 or die;
	command_fails_like(\@release, qr/^\Q$script\E differs from that of v0\.9\.0: a released script is never edited$/m, '... or has a script that was released otherwise');
	system("cd $work/tree && $git tag v0.9.1 && $git reset -q --soft HEAD~1 && $git reset -q $script && mv script $script") == 0 or die;
	mkdir "$work/tree/out";
	append_to_file("$work/tree/out/one.deb", 'x');
	command_ok(\@release, 'make release');
	is(slurp_file("$work/tree/out/NOTES.md") =~ s/\A\n|\n+\z//gr, $changes, '... cuts the notes out');
	is(join(' ', slurp_file("$work/tree/out/SHA256SUMS") =~ /^[0-9a-f]{64}  (.*)$/mg), "ttl-$release.zip one.deb", '... sums up all files');
	command_ok([ 'sh', '-c', "cd $work/tree/out && sha256sum --quiet -c SHA256SUMS" ], '... rightly');
	my %in = map { chomp; s,^ttl-\Q$release\E/,, ? ($_ => 1) : ("outside: $_" => 1) }
	  `cd $work/tree && git archive --prefix=ttl-$release/ HEAD | tar -tf -`;
	is_deeply(
		[ grep { !$in{$_} } 'META.json', 'Makefile', 'README.md', 'LICENSE', 'CHANGELOG.md', 'ttl.control', 'typedefs.list', 'debian/control.in',
			'doc/backups.md', 'src/ttl.c', 'src/reaper/worker.c', 'test/check', 'test/t/650_release_is_whole.pl', 'test/isolation/specs/epq.spec',
			map { s,^\Q$top\E/,,r } glob("$top/sql/* $top/expected/* $top/src/*.[ch] $top/src/*/*.[ch]") ],
		[], '... with all that is needed');
	is_deeply([ grep { m{^outside|^\.(ci|git)|\.([do]|so|bc|zip|orig|rej)$|^tmp_} } sort keys %in ], [], '... and nothing else');
}

#
# A build in another directory, from sources that can't be written to
#

SKIP:
{
	skip 'no compiler', 6 if system('cc --version > /dev/null 2>&1') != 0;

	mkdir "$work/$_" for 'source', 'build', 'to';
	system("cd $top && tar -cf - --exclude='*.[do]' Makefile META.json ttl.control src sql | tar -C $work/source -xf - && chmod -R a-w $work/source") == 0 or die;
	my @make = ('make', '-s', '-C', "$work/build", '-f', "$work/source/Makefile", "PG_CONFIG=$pg_config", 'with_llvm=no', 'COPT=-O0');
	command_ok([ @make, '-j2' ], 'a build elsewhere');
	command_ok([ @make, '-q' ], '... is finished');
	utime(undef, undef, "$work/source/src/reaper/reap_rel.h");
	is(join(' ', `@make -n` =~ m{-o (src/(?:ttl|guc|reaper/reap_rel|reaper/worker)\.o)}g),
		'src/reaper/reap_rel.o src/reaper/worker.o', '... but for what includes a header that changes');
	command_ok([ @make, '-j2' ], '... which is made anew');
	command_ok([ @make, 'install', "DESTDIR=$work/to" ], '... can be installed elsewhere');
	chomp(my @installed = `cd $work/to && find . -type f | sed 's,.*/,,' | sort`);
	is_deeply(\@installed, [ sort 'ttl.so', 'ttl.control', map { s,.*/,,r } glob("$top/sql/ttl--*.sql") ], '... and these are its files');
	system("chmod -R u+w $work/source");
}

done_testing();
