#!/bin/sh
# Programs that some tests use and pip cannot bring: installed where that may be done, else said how.
# usage: packages.sh COMMAND PACKAGE WHAT-IT-IS-FOR
set -u
command="$1" package="$2" purpose="$3"

if command -v "$command" > /dev/null; then
    exit 0
fi
by_hand="$purpose. To have it: apt-get install $package (Debian, Ubuntu), dnf install $package (Fedora)"
if [ "$(uname)" != Linux ] || [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "$package is not here: $by_hand"
    exit 0
fi
echo "Installing $package (once) ..."
export DEBIAN_FRONTEND=noninteractive
install() {
    apt-get "$@" install -qq -y --no-install-recommends "$package" > /dev/null 2>&1
}
update() {
    apt-get "$@" update -qq > /dev/null 2>&1
}
# apt fetches as a user of its own, who on some machines may not read how to reach the network.
as_root="-o APT::Sandbox::User=root"
# shellcheck disable=SC2086 # two words
install || { update && install; } || { update $as_root && install $as_root; } ||
    echo "$package could not be installed: $by_hand"
