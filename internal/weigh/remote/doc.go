// SPDX-License-Identifier: Apache-2.0

// Package remote makes a lab of machines: it reads an Ansible inventory, reaches each machine by SSH, puts jeoul there,
// and has it work as a worker.
//
//	this machine                          each machine of the inventory
//	bench ── lab.Host ── session ──ssh── sshd ── jeoul bench worker ── nginx, ab, …
//
// SSH is the ssh program's, as it is Ansible's: whatever way there is to a machine (jump hosts, agents, certificates,
// hardware keys, ~/.ssh/config), it knows, and the two reach the same machines. A library would have to be taught all
// of it.
//
// A worker is the same binary, copied there for the run. It speaks net/rpc over its standard streams; when these close,
// or the run was silent for a minute, it ends its processes, undoes its changes, and removes its directory and itself.
package remote
