# Sourced by ./quickstart and ./check: what both need on the machine. Not a program of its own.
# shellcheck shell=bash

# Prints a line of news on stderr: stdout is for results.
say() { printf '%s\n' "$*" >&2; }

# Ends with a reason and the command that helps.
give_up() {
    say "error: $1"
    shift
    local line
    for line; do say "    $line"; done
    exit 1
}

# need_space GIB DIRECTORY PURPOSE: refuses to start what would end in the middle, with a linker's or
# a package manager's message about something else.
need_space() {
    local existing=$2 free
    until [ -d "$existing" ]; do existing=$(dirname "$existing"); done
    free=$(df --output=avail --block-size=1G "$existing" | tail -n 1 | tr -d ' ')
    [ "$free" -ge "$1" ] ||
        give_up "$3 needs about $1 GiB of disk in $2, and $free GiB are free there" \
            "free some, or set CARGO_TARGET_DIR to a directory on a larger disk"
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# Whether sudo would work: without a password, or with somebody at a terminal who can type one.
can_sudo() {
    command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }
}

as_root() {
    if is_root; then "$@"; else sudo "$@"; fi
}

# has_package PACKAGE: by the thing itself where it is a program, whoever installed it; else by
# what dpkg or pkg-config know.
has_package() {
    case $1 in
    gcc) command -v cc >/dev/null ;;
    python3-venv) python3 -c 'import ensurepip' 2>/dev/null ;;
    nodejs) command -v node >/dev/null ;;
    npm | chromium) command -v "$1" >/dev/null ;;
    clang | make | pkg-config | git | python3 | shellcheck) command -v "$1" >/dev/null ;;
    libelf-dev) dpkg_has "$1" || pkg-config --exists libelf 2>/dev/null ;;
    zlib1g-dev) dpkg_has "$1" || pkg-config --exists zlib 2>/dev/null ;;
    ca-certificates) [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -d /etc/pki/tls/certs ] ;;
    *) dpkg_has "$1" || ! command -v dpkg-query >/dev/null ;; # without dpkg: the build will tell
    esac
}

dpkg_has() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need_packages PACKAGE...: installs those that are missing, by apt where there is one.
need_packages() {
    local package missing=()
    for package; do
        has_package "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    local install="apt-get install --yes --no-install-recommends ${missing[*]}"
    if ! command -v apt-get >/dev/null; then
        give_up "not installed: ${missing[*]} (the names are Debian's)" \
            "install clang, make, a C compiler, pkg-config, libelf and zlib with their headers;" \
            "Fedora: dnf install clang make gcc pkgconf-pkg-config elfutils-libelf-devel zlib-devel"
    fi
    if ! is_root && ! can_sudo; then
        give_up "not installed: ${missing[*]}; as root:" "apt-get update && $install"
    fi
    say "installing with apt: ${missing[*]}"
    say "    apt-get update && $install"
    as_root apt-get update --quiet >&2
    # shellcheck disable=SC2086 # the words of a command
    as_root env DEBIAN_FRONTEND=noninteractive $install --quiet >&2
}

# Where programs for tests are kept that are not installed: outside of the checkout, once for this user.
tools_directory=${XDG_CACHE_HOME:-$HOME/.cache}/irqlab/tools

# keep_tool NAME COMMAND...: runs a command in an empty directory, and keeps what it makes there as NAME
# in the directory of tools, whole or not at all.
keep_tool() {
    local name=$1 made
    shift
    mkdir -p "$tools_directory"
    made=$(mktemp -d "$tools_directory/.$name-XXXXXX")
    if ! (cd "$made" && "$@" >&2); then
        rm -rf "$made"
        return 1
    fi
    rm -rf "${tools_directory:?}/$name"
    mv "$made" "$tools_directory/$name"
}

# Debian's prometheus and promtool, for tests: their files alone, because the package starts a service.
unpack_prometheus() {
    chmod 755 .
    apt-get download --quiet prometheus ||
        { as_root apt-get update --quiet && apt-get download --quiet prometheus; } || return 1
    dpkg-deb -x prometheus_*.deb . && rm prometheus_*.deb
}

need_prometheus() {
    if command -v prometheus >/dev/null && command -v promtool >/dev/null; then return 0; fi
    [ ! -x "$tools_directory/prometheus/usr/bin/promtool" ] || return 0
    command -v dpkg-deb >/dev/null || return 1
    say "getting Debian's prometheus into $tools_directory/prometheus"
    keep_tool prometheus unpack_prometheus
}

# unpack_packages PACKAGE...: the files of packages alone, without their scripts, and of the packages that apt would add.
unpack_packages() {
    local packages=("$@") package
    chmod 755 .
    apt-get install --simulate --no-install-recommends "${packages[@]}" >added || return 1
    mapfile -t packages < <({ printf '%s\n' "${packages[@]}" && sed -n 's/^Inst \([^ ]*\).*/\1/p' added; } | sort -u)
    rm added
    apt-get download --quiet "${packages[@]}" || return 1
    for package in *.deb; do dpkg-deb -x "$package" . || return 1; done
    rm ./*.deb
}

# Debian's Slurm, for tests: the files of its packages alone, because they start services. Packages of Slurm that are
# installed here are unpacked, too.
unpack_slurm() {
    unpack_packages slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge
}

has_slurm() {
    [ -x "$tools_directory/slurm-1/usr/sbin/munged" ] && [ -x "$tools_directory/slurm-1/usr/sbin/slurmctld-wlm" ]
}

need_slurm() {
    # First, because the cache of tools may be kept when the machine is made anew.
    need_packages iproute2 procps || return 1
    ! has_slurm || return 0
    command -v dpkg-deb >/dev/null || return 1
    say "getting Debian's slurm into $tools_directory/slurm-1"
    keep_tool slurm-1 unpack_slurm || { as_root apt-get update --quiet && keep_tool slurm-1 unpack_slurm; }
}

# Debian's sshd, for tests: the files of its packages alone, because they start a service. Libraries are unpacked if apt
# would add them.
unpack_openssh() {
    local packages=(openssh-server) package
    chmod 755 .
    apt-get install --simulate --no-install-recommends "${packages[@]}" >added || return 1
    mapfile -t packages < <({ printf '%s\n' "${packages[@]}" && sed -n 's/^Inst \(lib[^ ]*\).*/\1/p' added; } | sort -u)
    rm added
    apt-get download --quiet "${packages[@]}" || return 1
    for package in *.deb; do dpkg-deb -x "$package" . || return 1; done
    rm ./*.deb
}

has_openssh() {
    [ -x "$tools_directory/openssh-1/usr/sbin/sshd" ] && command -v ssh >/dev/null
}

need_openssh() {
    need_packages openssh-client iproute2 || return 1
    ! has_openssh || return 0
    command -v dpkg-deb >/dev/null || return 1
    say "getting Debian's openssh-server into $tools_directory/openssh-1"
    keep_tool openssh-1 unpack_openssh || { as_root apt-get update --quiet && keep_tool openssh-1 unpack_openssh; }
}

# Debian's Open MPI, for tests: unpacked, so that it does not become the system's MPI.
unpack_openmpi() {
    unpack_packages openmpi-bin openmpi-common libopenmpi3
}

has_openmpi() { [ -x "$tools_directory/openmpi-1/usr/bin/orterun" ]; }

need_openmpi() {
    ! has_openmpi || return 0
    command -v dpkg-deb >/dev/null || return 1
    say "getting Debian's Open MPI into $tools_directory/openmpi-1"
    keep_tool openmpi-1 unpack_openmpi || { as_root apt-get update --quiet && keep_tool openmpi-1 unpack_openmpi; }
}

# Others' readers of the formats that irqlab writes, for tests, in a Python environment of their own.
make_readers() {
    # Not where it is made: the programs of an environment hold its path, the interpreter does not.
    python3 -m venv --without-pip . &&
        python3 -m pip --python bin/python install --quiet --no-warn-script-location \
            perfetto==0.59.1 prometheus_client==0.26.0 hdrhistogram==0.10.8
}

need_readers() {
    [ ! -x "$tools_directory/readers-1/bin/python" ] || return 0
    need_packages python3 python3-venv python3-pip || return 1
    say "installing readers of other formats for tests with pip into $tools_directory/readers-1"
    keep_tool readers-1 make_readers
}

# What irqlab is built with. clang compiles the BPF programs; libelf and zlib are libbpf's.
need_build_packages() {
    need_packages clang gcc libc6-dev libelf-dev zlib1g-dev make pkg-config ca-certificates
}

# The oldest Rust that irqlab is built with: Cargo.toml says it, once.
oldest_rust() {
    sed -n 's/^rust-version = "\([0-9.]*\)".*/\1/p' Cargo.toml
}

# is_at_least VERSION OLDEST
is_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort --version-sort | head -n 1)" = "$2" ]
}

# apt_rust OLDEST: the packages of a Rust that is new enough, if the distribution has one. Debian
# keeps a second, newer Rust (-web) for its browsers.
apt_rust() {
    local suffix version
    command -v apt-cache >/dev/null || return 1
    for suffix in "" -web; do
        version=$(apt-cache policy "rustc$suffix" | sed -n 's/^  Candidate: \([0-9.]*\).*/\1/p')
        if [ -n "$version" ] && is_at_least "$version" "$1"; then
            echo "cargo$suffix rustc$suffix"
            return 0
        fi
    done
    return 1
}

# Finds cargo, or gets it from the distribution, or says how to get it.
need_rust() {
    local oldest version packages
    oldest=$(oldest_rust)
    # A shell that is not a login shell may not have rustup's directory in its path.
    if ! command -v cargo >/dev/null && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    if ! command -v cargo >/dev/null && packages=$(apt_rust "$oldest") && { is_root || can_sudo; }; then
        say "installing with apt: $packages"
        say "    apt-get install --yes --no-install-recommends $packages"
        # shellcheck disable=SC2086 # two packages
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install --yes --quiet --no-install-recommends $packages >&2
    fi
    if ! command -v cargo >/dev/null; then
        [ -z "${SUDO_USER:-}" ] || say "($SUDO_USER's own Rust is not seen here: start without sudo)"
        give_up "Rust $oldest or newer is needed, and there is no cargo. To get it, then start again:" \
            "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    fi
    version=$(rustc --version 2>/dev/null | cut -d ' ' -f 2)
    if [ -z "$version" ]; then
        give_up "rustc is there but does not run:" "rustup default stable"
    fi
    if ! is_at_least "$version" "$oldest"; then
        if command -v rustup >/dev/null; then
            give_up "Rust $oldest or newer is needed, and this is $version:" "rustup update stable"
        fi
        give_up "Rust $oldest or newer is needed, and this is $version. A newer one, beside it:" \
            "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    fi
}

# need_browser DIRECTORY: what tests drive a browser with (tools/browser), into DIRECTORY.
need_browser() {
    need_packages chromium nodejs npm fonts-dejavu-core || return 1
    if ! cmp --silent tools/browser/package-lock.json "$1/package-lock.json" ||
        [ ! -d "$1/node_modules/playwright-core" ]; then
        say "installing playwright-core and axe-core with npm into $1"
        mkdir -p "$1"
        cp tools/browser/package.json tools/browser/package-lock.json tools/browser/.npmrc "$1/"
        (cd "$1" && npm ci --no-progress >&2) || return 1
    fi
}
