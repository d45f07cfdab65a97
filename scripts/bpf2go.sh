#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bpf2go.sh [FLAG...] NAME SOURCE: the common part of the lines of generate.go. It makes Go code and an object of an
# eBPF program, with the flags with which all of them are compiled; `-cflags` adds to these, and so does JEOUL_BPF_FLAGS
# (see other-build.sh).
set -euo pipefail

compile=(
	-Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror
	# Instructions of 32 bits and atomics: Linux 5.12.
	-mcpu=v3
	# The kernel's headers for the machine (asm/), where Debian has them.
	-idirafter /usr/include/x86_64-linux-gnu
	-idirafter /usr/include/aarch64-linux-gnu
)
read -ra more <<<"${JEOUL_BPF_FLAGS:-}"
# go generate puts its own go first in PATH, and runs this in the package's directory. `go run` uses GOFLAGS, which `go
# tool` does not: the program also has the modules of bpf2go, so they are compiled once.
go run github.com/cilium/ebpf/cmd/bpf2go -tags linux -target bpfel "$@" -- "${compile[@]}" "${more[@]}"

# The object is embedded compressed, and the generated code decompresses it. NAME is the last argument but one.
name=${*: -2:1}
object=${name,,}_bpfel.o code=${name,,}_bpfel.go
# Without BTF relocations, which only a linker needs: that saves an eighth of the embedded bytes.
llvm-objcopy --remove-section=.rel.BTF --remove-section=.rel.BTF.ext "$object"
gzip -9nf "$object"
sed -i -e "s|^//go:embed $object\$|&.gz|" -e 's|bytes\.NewReader(\(_[A-Za-z0-9]*Bytes\))|bpfobject.Open(\1)|' \
	-e 's|^\t"bytes"$|\t"github.com/jeoul/jeoul/internal/host/bpfobject"|' "$code"
# Other versions of bpf2go may write other lines.
if ! grep -q 'bpfobject\.Open' "$code" || ! grep -q "^//go:embed $object\.gz\$" "$code"; then
	printf '%s: bpf2go writes %s otherwise than this script knows\n' "$0" "$code" >&2
	exit 1
fi
gofmt=$(go env GOROOT)/bin/gofmt
[ ! -x "$gofmt" ] || "$gofmt" -w "$code"
