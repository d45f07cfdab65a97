// SPDX-License-Identifier: Apache-2.0

package drops

//go:generate go tool bpf2go -tags linux -target bpfel -go-package drops tracer ../../bpf/drops.bpf.c -- -Wall -Wextra -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
