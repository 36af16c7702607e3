# shellcheck shell=bash
# test/lib.sh - what test/check, test/demo and programs of test/bench share: a private PostgreSQL with ttl in it
#
# Missing Debian packages are installed (as root, or by sudo); a PostgreSQL that is there stays in
# its version.  Apart from that nothing outside of the temporary directory $WORK is written:
# PostgreSQL finds its files relative to its programs, so a copy of the server in $WORK/root is a
# complete one, and ttl is built and installed there.
#
# PG_CONFIG chooses the server; by default it is the newest that is installed from packages, or
# the one that this Debian carries.
set -euo pipefail

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CHOSEN=${PG_CONFIG:-}
WORK=
RUN_AS=
MORE=               # packages of Debian that the caller needs, too
MORE_FOR_SERVER=    # those of the server's version: wal2json for postgresql-15-wal2json
WISHED=             # as MORE, if apt knows them
WISHED_FOR_SERVER=

# Nothing of the caller's may change how tests run.
unset ${!PG*} MAKEFLAGS MAKELEVEL MFLAGS
export LC_ALL=C.UTF-8 TZ=UTC
umask 022

say() { echo "$(basename "$0"): $*"; }
die() { say "$*" >&2; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo > /dev/null; then
        sudo "$@"
    else
        die "this needs root, or sudo: $*"
    fi
}

# Runs a command as somebody whom PostgreSQL accepts: not root.
as_user() {
    if [ -n "$RUN_AS" ]; then
        setpriv --reuid="$RUN_AS" --regid="$(id -g "$RUN_AS")" --clear-groups env HOME="$WORK" "$@"
    else
        "$@"
    fi
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2> /dev/null)" = installed ]; }

apt_update() {
    [ -z "${APT_UPDATED:-}" ] || return 0
    as_root apt-get -qq update || say "apt-get update failed, going on with what apt knows"
    APT_UPDATED=yes
}

# Installs what is missing, and sets PG_CONFIG.
need_packages() {
    local version p want upgraded wished=$WISHED missing=()
    want="make gcc libc6-dev perl libipc-run-perl binutils $MORE"

    if ! command -v apt-get > /dev/null; then
        [ -n "$CHOSEN" ] || die "this is not Debian: install what README.md names, and set PG_CONFIG"
        PG_CONFIG=$CHOSEN
        return
    fi
    if [ -n "$CHOSEN" ]; then
        PG_CONFIG=$CHOSEN
    else
        version=$(find /usr/lib/postgresql/*/bin/postgres 2> /dev/null | cut -d/ -f5 | sort -n | tail -n 1) || true
        if [ -z "$version" ]; then
            apt_update
            version=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1)
            [ -n "$version" ] || die "apt knows no package postgresql"
        fi
        PG_CONFIG=/usr/lib/postgresql/$version/bin/pg_config
        want+=" postgresql-$version postgresql-client-$version"
        for p in $MORE_FOR_SERVER; do
            want+=" postgresql-$version-$p"
        done
        for p in $WISHED_FOR_SERVER; do
            wished+=" postgresql-$version-$p"
        done
    fi
    keep_postgresql
    [ -z "$wished" ] || apt_update
    for p in $wished; do
        # one that is there, and goes with the server that is
        installed "$p" || ! install_packages -s "$p" > /dev/null 2>&1 || want+=" $p"
    done
    for p in $want; do
        installed "$p" || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    apt_update
    say "installing ${missing[*]}"
    upgraded=$(install_packages -s "${missing[@]}" 2> /dev/null | sed -n 's/^Inst \([^ ]*\) \[.*/\1/p') || true
    [ -z "$upgraded" ] || say "which upgrades" $upgraded
    no_main_cluster install_packages "${missing[@]}" > "$WORK/apt.log" 2>&1 ||
        { tail -n 20 "$WORK/apt.log"; die "apt-get could not install ${missing[*]}"; }
}

install_packages() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends \
        -o Dpkg::Use-Pty=0 -o Dir::Etc::Preferences="$WORK/preferences" install "$@"
}

# Whatever is installed, a server stays in the version that it has.
keep_postgresql() {
    {
        cat /etc/apt/preferences 2> /dev/null || true
        echo
        dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' 'postgresql-[0-9]*' 'postgresql-client-[0-9]*' 2> /dev/null |
            sed -n 's/^installed \([^ ]*\) \(.*\)/Package: \1\nPin: version \2\nPin-Priority: 1001\n/p' || true
    } > "$WORK/preferences"
}

# Runs a command while Debian is told to make no cluster for a server that it installs.
no_main_cluster() {
    local conf=/etc/postgresql-common/createcluster.d/ttl-test.conf rc=0
    if ! [ -e /etc/postgresql-common ]; then
        as_root mkdir -p "${conf%/*}"
        echo 'create_main_cluster = false' | as_root tee "$conf" > /dev/null
    fi
    "$@" || rc=$?
    [ ! -e "$conf" ] || as_root rm -f "$conf"
    return $rc
}

# unpack PACKAGE RELEASE: a package of Debian into $WORK/root, instead of installing it; of this release of PostgreSQL,
# if apt has that, or the newest
unpack() {
    local get=(apt-get -qq -o APT::Sandbox::User=root download)
    apt_update
    rm -f "$WORK"/*.deb
    (cd "$WORK" && { "${get[@]}" "$1=$2-*" 2> /dev/null || "${get[@]}" "$1"; } > /dev/null && dpkg-deb -x ./*.deb root) ||
        die "could not get $1"
}

# Copies the server to $WORK/root, and makes PG_CONFIG the copy's.
copy_server() {
    local dir from version p
    [ -x "$PG_CONFIG" ] || PG_CONFIG=$(command -v "$PG_CONFIG") || die "no such pg_config: $CHOSEN"
    # a wrapper (Debian's in /usr/bin) can't be copied: take the server's own
    [ ! -x "$("$PG_CONFIG" --bindir)/pg_config" ] || PG_CONFIG=$("$PG_CONFIG" --bindir)/pg_config
    for dir in bindir pkglibdir sharedir includedir-server; do
        from=$("$PG_CONFIG" --$dir)
        mkdir -p "$WORK/root$from"
        [ ! -d "$from" ] || cp -a "$from/." "$WORK/root$from"
    done
    PG_CONFIG=$WORK/root$PG_CONFIG
    version=$(release_of_server | sed 's/[^0-9].*//')
    # Debian's package for building extensions depends on 600 MB of clang and LLVM, for JIT
    # alone.  If it isn't there, take its files without them.
    if ! [ -e "$("$PG_CONFIG" --includedir-server)/postgres.h" ]; then
        say "fetching postgresql-server-dev-$version"
        unpack "postgresql-server-dev-$version" "$(release_of_server)"
    fi
    # What is compiled with headers of a later minor release may call functions that the server lacks.
    if headers_are_newer; then
        say "the server is $(release_of_server), the headers are of $(release_of_headers): fetching that server for the tests"
        for p in "postgresql-$version" "postgresql-client-$version" libpq5; do
            unpack "$p" "$(release_of_headers)"
        done
        LD_LIBRARY_PATH=$(dirname "$(find "$WORK/root" -name libpq.so.5)")
        export LD_LIBRARY_PATH
        ! headers_are_newer ||
            die "apt has no server of $(release_of_headers): install headers and server of the same minor release"
    fi
    [ -e "$("$PG_CONFIG" --includedir-server)/postgres.h" ] || die "no headers for $PG_CONFIG"
    BIN=$("$PG_CONFIG" --bindir)
    PATH=$BIN:$PATH
}

release_of_server() { "$("$PG_CONFIG" --bindir)/postgres" --version | sed 's/[^0-9]*\([^ ]*\).*/\1/'; }

release_of_headers() {
    sed -n 's/^#define PG_VERSION "\([^ "]*\).*/\1/p' "$("$PG_CONFIG" --includedir-server)/pg_config.h"
}

headers_are_newer() {
    [ "$(release_of_headers)" != "$(release_of_server)" ] &&
        [ "$({ release_of_headers; release_of_server; } | sort -V | tail -n 1)" = "$(release_of_headers)" ]
}

# Copies the tree to $WORK/ttl as it stands, without what git ignores.
copy_tree() {
    local git=(git -c safe.directory='*' -C "$TOP")
    mkdir "$WORK/ttl"
    if "${git[@]}" rev-parse > /dev/null 2>&1; then
        "${git[@]}" ls-files -z --cached --others --exclude-standard |
            (cd "$TOP" && while IFS= read -r -d '' f; do
                [ ! -e "$f" ] || printf '%s\0' "$f"
            done | tar --null -T - -cf -)
    else
        tar -C "$TOP" --exclude='*.o' --exclude='*.d' --exclude='*.so' --exclude='*.bc' --exclude='./tmp_*' -cf - .
    fi | tar -C "$WORK/ttl" --no-same-owner -xf -
    copy_clients
}

# What test/clients/run has installed
copy_clients() {
    rm -rf "$WORK/ttl/test/clients/node_modules"
    [ ! -d "$TOP/test/clients/node_modules" ] || cp -a "$TOP/test/clients/node_modules" "$WORK/ttl/test/clients"
}

# build [FLAG...]: builds ttl, with these flags for the compiler, and installs it into the private
# server.  Without LLVM's bitcode, which is for JIT alone.
build() {
    as_user make -s -j"$(nproc)" with_llvm=no PG_CONFIG="$PG_CONFIG" COPT="$*" &&
        as_user make -s with_llvm=no PG_CONFIG="$PG_CONFIG" install > /dev/null
}

# Stops every server whose data directory is in $WORK, and removes $WORK.
clean_up() {
    local f pid
    set +e
    trap '' HUP INT TERM
    [ -n "$WORK" ] && [ -d "$WORK" ] || return 0
    while read -r f; do
        pid=$(head -n 1 "$f" 2> /dev/null) && [ -n "$pid" ] || continue
        as_user kill -QUIT "$pid" 2> /dev/null || continue
        for _ in $(seq 50); do
            as_user kill -0 "$pid" 2> /dev/null || break
            sleep 0.1
        done
    done < <(find "$WORK" -name postmaster.pid 2> /dev/null)
    cd /
    rm -rf "$WORK" 2> /dev/null || { sleep 1; rm -rf "$WORK"; }
}

make_work() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/ttl-XXXXXX")
    export TMPDIR=$WORK
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 129' HUP
    trap 'exit 143' TERM
}

# Gives $WORK to whom as_user will be.
choose_user() {
    [ "$(id -u)" = 0 ] || return 0
    RUN_AS=nobody
    ! id postgres > /dev/null 2>&1 || RUN_AS=postgres
    chown -R "$RUN_AS" "$WORK"
}

# Everything before build; leaves the shell in the copy of the tree.
prepare() {
    make_work
    need_packages
    copy_server
    copy_tree
    choose_user
    cd "$WORK/ttl"
    say "ttl for $("$PG_CONFIG" --version)"
}

# Instead of all that and of build: takes a server in which ttl is installed, as it is.
prepare_installed() {
    make_work
    PG_CONFIG=${CHOSEN:-pg_config}
    BIN=$("$PG_CONFIG" --bindir)
    PATH=$BIN:$PATH
    choose_user
    cd "$WORK"
    say "ttl for $("$PG_CONFIG" --version)"
}

# start_server [LINE OF postgresql.conf...]: a server in $WORK, with ttl loaded, for psql and others to find
start_server() {
    export PGHOST=$WORK PGUSER=postgres
    as_user initdb -D "$WORK/data" -U postgres -A trust -E UTF8 --no-locale > "$WORK/initdb.log"
    printf '%s\n' "shared_preload_libraries = 'ttl'" "listen_addresses = ''" "unix_socket_directories = '$WORK'" "$@" \
        >> "$WORK/data/postgresql.conf"
    as_user pg_ctl -D "$WORK/data" -l "$WORK/server.log" -w start > /dev/null || { cat "$WORK/server.log"; die "no server"; }
}
