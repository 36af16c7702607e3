# ttl - Time-To-Live for PostgreSQL tables
#
#   make && sudo make install          PG_CONFIG=/path/to/pg_config chooses the server
#   make installcheck                  every test, on private servers; needs the above first
#   make regress-check | isolation-check | tap-check | check-layering      one kind alone
#   make indent                        PostgreSQL's code style
#   make dist                          a release archive
#   make release                       that, with sums and notes
#   make site                          the pages, as HTML with a search
#
# make with_llvm=no does without clang.  In another directory, make -f DIR/Makefile builds there.
# test/check does it all, from nothing.

EXTENSION = ttl
MODULE_big = ttl

# PGXS sets srcdir later
top := $(dir $(firstword $(MAKEFILE_LIST)))

# In another directory.  PGXS does this, too, but not that of a PostgreSQL which was configured in its source tree.
ifneq ($(top),./)
VPATH = $(top)
endif

DISTVERSION = $(shell sed -n 's/^   "version": "\(.*\)",/\1/p' $(top)META.json)

# Scripts of the extension are named ttl--VERSION.sql and ttl--FROM--TO.sql; the other files of sql/ are tests, in REGRESS.
DATA = $(sort $(patsubst $(top)%,%,$(wildcard $(top)sql/$(EXTENSION)--[0-9]*.sql)))

OBJS = $(sort $(patsubst $(top)%.c,%.o,$(wildcard $(top)src/*.c $(top)src/*/*.c)))

# The order matters: they share a database, which install prepares and
# uninstall checks at the end.
REGRESS = \
	install \
	expiry \
	kinds \
	registering \
	tables \
	units \
	configuration \
	ttl_index \
	taking_back \
	catalog \
	ddl \
	indexes \
	foreign_keys \
	referencing \
	written_rows \
	temporal \
	hiding \
	scans \
	clock \
	rounding \
	instants \
	keys \
	messages \
	reap \
	blocked \
	archive \
	rights \
	whose_code \
	owners \
	sessions \
	tools \
	uninstall

ISOLATION = \
	archive_vs_insert \
	archive_vs_policy \
	archive_vs_reap \
	attach \
	clock_vs_lock \
	copy_vs_ddl \
	counts_vs_commit \
	ddl_vs_ddl \
	ddl_vs_reap \
	detach \
	epq \
	epq_forms \
	epq_scans \
	expired_meanwhile \
	expired_within \
	expired_writers \
	index_changes \
	insert_vs_insert \
	kinds_vs_reap \
	nothing_done \
	old_snapshots \
	owner_vs_reap \
	policy_vs_plan \
	policy_vs_reap \
	policy_vs_workers \
	reap_vs_insert \
	reap_vs_update \
	referencing \
	register_at_once \
	register_locks \
	reindex_vs_scan \
	repeatable_read \
	rowlock_vs_reap \
	serializable \
	serializable_ddl \
	serializable_scans \
	upsert_vs_upsert

# Where pg_regress would have times in the style of the seventies.
TEST_LAUNCHER = --launcher='env PGTZ=UTC PGDATESTYLE=ISO'
TEST_OPTS = --temp-config=$(srcdir)/test/ttl.conf --no-locale --encoding=UTF8 $(TEST_LAUNCHER)
REGRESS_OPTS = --temp-instance=./tmp_regress $(TEST_OPTS)
ISOLATION_OPTS = --temp-instance=./tmp_isolation --inputdir=$(srcdir)/test/isolation $(TEST_OPTS)

TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl test/citus/*.pl

PG_CPPFLAGS = -I$(srcdir)/src
# Each object file brings a list of the headers that it was made from.
PG_CFLAGS = -MMD -MP
EXTRA_CLEAN = $(OBJS:.o=.d) tmp_regress tmp_isolation tmp_initdb tmp_destdir.conf tmp_tap.conf

# PGXS's own installcheck goes to a running server; ours is below.
NO_INSTALLCHECK = 1

PG_CONFIG = pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

include $(wildcard $(OBJS:.o=.d))
$(OBJS:.o=.bc): %.bc: %.o

# Nor does it make folders; make itself would find those of the sources.
ifdef VPATH
_ := $(shell mkdir -p $(dir $(OBJS)))
endif

# What is compiled with headers of a later minor release may call functions that the server lacks: that would not start.
releases := $(shell '$(bindir)/postgres' --version 2> /dev/null | sed 's/[^0-9]*\([^ ]*\).*/\1/') \
	$(shell sed -n 's/^\#define PG_VERSION "\([^ "]*\).*/\1/p' '$(includedir_server)/pg_config.h' 2> /dev/null)
ifeq ($(words $(releases)) $(strip $(releases)),2 $(shell printf '%s\n' $(releases) | sort -V -u | xargs))
$(warning the headers are of PostgreSQL $(lastword $(releases)), the server is $(firstword $(releases)): upgrade the server, or it may not start with ttl)
endif

#
# Tests
#

.PHONY: installcheck regress-check isolation-check tap-check check-listed check-layering

installcheck: regress-check isolation-check tap-check

# What is installed below DESTDIR is found there, as while a package is built: by Debian's setting up to 17,
# by PostgreSQL's from 18 on.
ifneq ($(DESTDIR),)
TEST_OPTS += --temp-config=tmp_destdir.conf

regress-check isolation-check tap-check: tmp_destdir.conf
tmp_destdir.conf:
	@{ echo "dynamic_library_path = '$(DESTDIR)$(pkglibdir):\$$libdir'"; \
	  if grep -q extension_control_path '$(datadir)/postgresql.conf.sample'; \
	  then echo "extension_control_path = '$(DESTDIR)$(datadir):\$$system'"; \
	  else echo "extension_destdir = '$(DESTDIR)'"; fi; } > $@
	@cat $(srcdir)/test/tap.conf $@ > tmp_tap.conf
endif

# What a package of PostgreSQL may lack
pg_isolation_regress := $(wildcard $(top_builddir)/src/test/isolation/pg_isolation_regress)
perl_modules := $(wildcard $(top_srcdir)/src/test/perl/PostgreSQL/Test/Cluster.pm)

regress-check: check-listed
	$(pg_regress_installcheck) $(REGRESS_OPTS) $(REGRESS)

ifeq ($(pg_isolation_regress),)
isolation-check:
	@echo '1..0 # SKIP isolation tests: this PostgreSQL has no pg_isolation_regress'
else ifeq ($(strip $(ISOLATION)),)
isolation-check: check-listed
	@echo '1..0 # SKIP isolation tests: there are none'
else
isolation-check: check-listed
	$(pg_isolation_regress_installcheck) $(ISOLATION_OPTS) $(ISOLATION)
endif

ifeq ($(perl_modules),)
tap-check:
	@echo '1..0 # SKIP TAP tests: this PostgreSQL has no Perl modules for them'
else ifneq ($(enable_tap_tests),yes)
tap-check:
	@echo '1..0 # SKIP TAP tests: this PostgreSQL was built without --enable-tap-tests'
else ifeq ($(wildcard $(srcdir)/test/t/*.pl),)
tap-check:
	@echo '1..0 # SKIP TAP tests: there are none'
else
tap-check: export TEMP_CONFIG = $(abspath $(if $(DESTDIR),tmp_tap.conf,$(srcdir)/test/tap.conf))
tap-check: export INITDB_TEMPLATE = $(abspath tmp_initdb)
tap-check:
	@rm -rf tmp_initdb
	@LC_ALL= LC_MESSAGES=C '$(bindir)/initdb' -A trust -N -D tmp_initdb > /dev/null
	$(prove_installcheck)
endif

# What nobody runs or installs is forgotten.
unlisted := \
	$(filter-out $(DATA) $(REGRESS:%=sql/%.sql),$(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/sql/*.sql))) \
	$(filter-out $(ISOLATION:%=test/isolation/specs/%.spec),$(patsubst $(srcdir)/%,%,$(wildcard $(srcdir)/test/isolation/specs/*.spec)))

# Of some tests that were named on the command line, the rest isn't listed.
check-listed:
	@test '$(origin REGRESS)$(origin ISOLATION)' != filefile || test -z '$(strip $(unlisted))' || \
		{ echo 'not listed in REGRESS or ISOLATION: $(strip $(unlisted))' >&2; exit 1; }

check-layering: all
	$(srcdir)/test/layering/check $(srcdir) $(shlib) $(OBJS)

#
# Housekeeping
#

SOURCES = $(wildcard $(srcdir)/src/*.[ch] $(srcdir)/src/*/*.[ch])

.PHONY: indent typedefs dist release releasable site

# The C files in PostgreSQL's style; pg_bsd_indent is a package of that name,
# with a dash, in Debian.
indent:
	PG_CONFIG='$(PG_CONFIG)' $(srcdir)/test/layering/indent $(SOURCES)

# Our own type names; PostgreSQL's are found in its headers.
typedefs:
	sed -nE 's/^\} *([A-Z][A-Za-z]+);.*/\1/p; s/^typedef (struct|enum|union) ([A-Z][A-Za-z]+)( [A-Z][A-Za-z]+;)?$$/\2/p; s/^typedef .*[ *(]([A-Z][A-Za-z]+)\)? *(\(.*)?;.*/\1/p' \
		$(SOURCES) | LC_ALL=C sort -u > $(srcdir)/typedefs.list

dist:
	git archive --format=zip --prefix=$(EXTENSION)-$(DISTVERSION)/ --output=$(EXTENSION)-$(DISTVERSION).zip HEAD

# What is published of a version, in RELEASE: the archive, packages that are there already, their sums, and what CHANGELOG.md says of it
RELEASE = tmp_release
release: releasable dist
	mkdir -p $(RELEASE)
	mv $(EXTENSION)-$(DISTVERSION).zip $(RELEASE)
	sed -n '/^## \[$(DISTVERSION)\] - 20/,/^## /{/^## /!p}' $(top)CHANGELOG.md > $(RELEASE)/NOTES.md
	cd $(RELEASE) && sha256sum *.zip $$(ls | grep '\.deb$$') > SHA256SUMS

# A number means one thing: it is in CHANGELOG.md with a date, and a script of the extension is what it was when it was released.
releasable:
	@grep -q '^## \[$(DISTVERSION)\] - 20' $(top)CHANGELOG.md || \
		{ echo 'CHANGELOG.md has no section "[$(DISTVERSION)] - date"' >&2; exit 1; }
	@grep -q '"release_status": "stable"' $(top)META.json || { echo 'META.json does not say "stable"' >&2; exit 1; }
	@for tag in $$(git tag --list --merged HEAD 'v*'); do \
		for script in $$(git ls-tree --name-only $$tag sql/ | grep '^sql/$(EXTENSION)--[0-9]'); do \
			git diff --quiet $$tag HEAD -- $$script || \
				{ echo "$$script differs from that of $$tag: a released script is never edited" >&2; exit 1; }; \
		done || exit 1; \
	done

# README.md and doc/ as static pages, in SITE/html; needs mkdocs-material (Debian)
SITE = tmp_site
site:
	$(top)doc/site/build $(SITE)
