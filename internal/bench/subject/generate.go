// SPDX-License-Identifier: Apache-2.0

package subject

//go:generate go tool bpf2go -tags linux -target bpfel -go-package subject wireBare ../../../bpf/wirebare.bpf.c -- -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -tags linux -target bpfel -go-package subject bareTC ../../../bpf/baretc.bpf.c -- -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
