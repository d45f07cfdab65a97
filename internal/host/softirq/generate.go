// SPDX-License-Identifier: Apache-2.0

package softirq

//go:generate ../../../scripts/bpf2go.sh meter ../../../bpf/observe/softirq.bpf.c
