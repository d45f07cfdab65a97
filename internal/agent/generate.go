// SPDX-License-Identifier: Apache-2.0

package agent

//go:generate go tool bpf2go -tags linux -target bpfel -go-package agent -type agent_mode -type agent_outcome -type agent_role tc ../../bpf/agent_tc.bpf.c -- -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -mcpu=v3 -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
