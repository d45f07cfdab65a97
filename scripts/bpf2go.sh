#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# bpf2go.sh [FLAG...] NAME SOURCE: what the lines of generate.go have in common. Makes Go code and an
# object of an eBPF program, with what all of them are compiled with; `-cflags` adds to that, and so does
# JEOUL_BPF_FLAGS (see other-build.sh).
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
# go generate puts its own go first in PATH.
exec go tool bpf2go -tags linux -target bpfel "$@" -- "${compile[@]}" "${more[@]}"
