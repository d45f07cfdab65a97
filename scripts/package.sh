#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# package.sh deb|tarball JEOUL DIR: makes a Debian package, or an archive with a directory, of that program and its
# files: units, manual pages, completion, examples; the archive also has jeoul-bgp and jeoul-kubernetes, if they are in
# the same directory. package.sh deb-bgp|deb-kubernetes PROGRAM DIR: makes the Debian package of that program. ARCH is
# the architecture of the program, by default this machine's own; for another one, HERE is the path of a jeoul that runs
# here and prints the manual pages and completions. It prints the file's path and size.
set -euo pipefail
# A package has the modes of the files that are staged, and an archive those of directories, which tar gives to existing
# ones.
umask 022
. "$(dirname "$0")/lib.sh"

go=${GO:-$TREE/scripts/go.sh}
export ARCH=${ARCH:-$(debian_arch)}
# The architecture's name in systemd.
case $ARCH in
amd64) machine=x86-64 ;;
arm64) machine=arm64 ;;
*) die "packages are made for amd64 and arm64, and not for $ARCH" ;;
esac
kind=$1 jeoul=$(realpath "$2") to=$3
here=$(realpath "${HERE:-$jeoul}")
mkdir -p "$to"
to=$(cd "$to" && pwd)
cd "$TREE"

git=(git -c "safe.directory=$TREE")
# version: the tag that is built, or the time and the commit, which sort before every tag.
version() {
	local tag
	if tag=$("${git[@]}" describe --exact-match --match 'v[0-9]*' 2>/dev/null); then
		printf '%s\n' "${tag#v}"
	else
		TZ=UTC "${git[@]}" log -1 --date=format-local:%Y%m%d%H%M%S --format='0~%cd.%h'
	fi
}

export VERSION=${VERSION:-$(version)} STAGE
# The same commit makes the same package.
SOURCE_DATE_EPOCH=$("${git[@]}" log -1 --format=%ct)
export SOURCE_DATE_EPOCH
STAGE=$(mktemp -d)
trap 'rm -rf "$STAGE"' EXIT

# stage ROOT: the files of an installation below ROOT.
stage() {
	local page
	install -Dm755 "$jeoul" "$1/usr/bin/jeoul"
	install -Dm644 -t "$1/usr/lib/systemd/system" deploy/package/*.service
	assert_architecture "$1"
	install -Dm640 deploy/package/jeoul.yaml "$1/etc/jeoul/jeoul.yaml"
	install -Dm644 deploy/package/jeoul-agent.default "$1/etc/default/jeoul-agent"
	install -Dm644 -t "$1/usr/share/doc/jeoul" CHANGELOG.md README.md deploy/package/checks-by-vip.conf deploy/package/proxy.conf
	install -Dm644 LICENSE "$1/usr/share/doc/jeoul/copyright"
	install -Dm644 -t "$1/usr/share/doc/jeoul/LICENSES" LICENSES/*
	install -Dm644 -t "$1/usr/share/doc/jeoul/examples" examples/*.yaml
	install -Dm644 -t "$1/usr/share/jeoul/suites" suites/*.yaml
	mkdir -p "$1/usr/share/bash-completion/completions" "$1/usr/share/zsh/vendor-completions" "$1/usr/share/fish/vendor_completions.d"
	# Debian's shells load these by the name of the command.
	completion bash >"$1/usr/share/bash-completion/completions/jeoul"
	{ printf '#compdef jeoul\n' && completion zsh; } >"$1/usr/share/zsh/vendor-completions/_jeoul"
	completion fish >"$1/usr/share/fish/vendor_completions.d/jeoul.fish"
	"$here" man "$STAGE/man"
	for page in "$STAGE"/man/*; do
		install -Dm644 -t "$1/usr/share/man/man${page##*.}" "$page"
	done
	find "$1/usr/share/man" -type f -exec gzip -9n {} +
	rm -r "$STAGE/man"
}

# assert_architecture ROOT: units fail to start, with the reason, on a machine that cannot run the program.
assert_architecture() {
	sed -i "0,/^\[Unit\]\$/s//[Unit]\nAssertArchitecture=$machine/" "$1"/usr/lib/systemd/system/*.service
}

# completion SHELL: calls the program by its installed path.
completion() {
	"$here" completion "$1" | sed "s|$here|/usr/bin/jeoul|g"
}

# deb: prints the path of the package.
deb() {
	stage "$STAGE"
	pack deploy/package/nfpm.yaml "jeoul_${VERSION}_$ARCH.deb"
}

# pack CONFIG FILE: makes a package of what is staged, and prints its path. A failure leaves no half of it there.
pack() {
	"$go" run "$NFPM" package --config "$1" --packager deb --target "$STAGE/$2" >&2
	compress "$STAGE/$2"
	mv "$STAGE/$2" "$to/$2"
	printf '%s\n' "$to/$2"
}

# stage_kubernetes PROGRAM ROOT: the files of jeoul-kubernetes in an installation below ROOT.
stage_kubernetes() {
	install -Dm755 "$1" "$2/usr/bin/jeoul-kubernetes"
	install -Dm644 -t "$2/usr/lib/systemd/system" deploy/package/kubernetes/*.service
	sed -i "0,/^\[Unit\]\$/s//[Unit]\nAssertArchitecture=$machine/" "$2/usr/lib/systemd/system/jeoul-kubernetes.service"
	install -Dm644 deploy/package/kubernetes/jeoul-kubernetes.default "$2/etc/default/jeoul-kubernetes"
	install -Dm644 -t "$2/usr/share/doc/jeoul-kubernetes/manifests" deploy/kubernetes/*.yaml
	install -Dm644 -t "$2/usr/share/doc/jeoul-kubernetes/manifests/gateway" deploy/kubernetes/gateway/*.yaml
	install -Dm755 -t "$2/usr/share/doc/jeoul-kubernetes/manifests" deploy/kubernetes/kubeconfig.sh
	install -Dm644 LICENSE "$2/usr/share/doc/jeoul-kubernetes/copyright"
}

# stage_bgp PROGRAM ROOT: the files of jeoul-bgp in an installation below ROOT.
stage_bgp() {
	install -Dm755 "$1" "$2/usr/bin/jeoul-bgp"
	install -Dm644 LICENSE "$2/usr/share/doc/jeoul-bgp/copyright"
}

# deb_of bgp|kubernetes: prints the path of the package of jeoul-bgp or jeoul-kubernetes.
deb_of() {
	"stage_$1" "$jeoul" "$STAGE"
	pack "deploy/package/$1/nfpm.yaml" "jeoul-$1_${VERSION}_$ARCH.deb"
}

# compress DEB: compresses the contents of a package with xz, because nfpm's own xz needs a quarter more space. See
# deb(5). The filter for amd64's instructions saves another 3 %; not every liblzma that dpkg may have supports arm64's
# filter.
compress() {
	local parts=$STAGE/parts filters=()
	[ "$ARCH" != amd64 ] || filters=(--x86)
	mkdir "$parts"
	(
		cd "$parts"
		llvm-ar x "$1"
		xz -T1 "${filters[@]}" --lzma2=preset=9e data.tar
		rm "$1"
		llvm-ar --format=gnu qcSD "$1" debian-binary control.tar.gz data.tar.xz
	)
}

# tarball: prints the path of the archive.
tarball() {
	local name=jeoul-$VERSION-linux-$ARCH
	stage "$STAGE/$name"
	local other
	for other in bgp kubernetes; do
		[ ! -x "${jeoul%/*}/jeoul-$other" ] || "stage_$other" "${jeoul%/*}/jeoul-$other" "$STAGE/$name"
	done
	tar --create --xz --file "$STAGE/$name.tar.xz" --directory "$STAGE" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
		--owner=0 --group=0 --numeric-owner "$name"
	mv "$STAGE/$name.tar.xz" "$to"
	printf '%s\n' "$to/$name.tar.xz"
}

case $kind in
deb | tarball) file=$("$kind") ;;
deb-bgp | deb-kubernetes) file=$(deb_of "${kind#deb-}") ;;
*) die "package.sh makes a deb, a deb-bgp, a deb-kubernetes or a tarball, and no $kind" ;;
esac
printf '%s: %s KiB\n' "$file" "$(($(stat -c %s "$file") / 1024))"
