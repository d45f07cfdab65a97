// SPDX-License-Identifier: Apache-2.0

package numbered

//go:generate ../../../scripts/bpf2go.sh numbered ../../../bpf/lab/numbered.bpf.c
