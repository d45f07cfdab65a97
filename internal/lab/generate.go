// SPDX-License-Identifier: Apache-2.0

package lab

//go:generate go tool bpf2go -tags linux -target bpfel -go-package lab labSwitch ../../bpf/labswitch.bpf.c -- -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -tags linux -target bpfel -go-package lab labWire ../../bpf/labwire.bpf.c -- -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
