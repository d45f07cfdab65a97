// SPDX-License-Identifier: Apache-2.0

package softirq

//go:generate go tool bpf2go -tags linux -target bpfel -go-package softirq meter ../../bpf/softirq.bpf.c -- -Wall -Wextra -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
