// SPDX-License-Identifier: Apache-2.0

package drops

//go:generate ../../../scripts/bpf2go.sh tracer ../../../bpf/observe/drops.bpf.c
