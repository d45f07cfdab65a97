// SPDX-License-Identifier: Apache-2.0

package agent

//go:generate ../../../scripts/bpf2go.sh -type agent_mode -type agent_outcome -type agent_role tc ../../../bpf/agent/tc.bpf.c
