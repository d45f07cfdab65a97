// SPDX-License-Identifier: Apache-2.0

// Package remote makes a lab of machines: it reads an Ansible inventory, reaches each machine by SSH, copies jeoul
// there, and runs it as a worker.
//
//	this machine                          each machine of the inventory
//	bench ── lab.Host ── session ──ssh── sshd ── jeoul bench worker ── nginx, ab, …
//
// SSH is the ssh program's, as in Ansible. It supports every way to reach a machine (jump hosts, agents, certificates,
// hardware keys, ~/.ssh/config), and Ansible and the bench reach the same machines. A library would need to implement
// all of that.
//
// A worker is the same binary, copied there for the run. It serves net/rpc over its standard streams. When these close,
// or no call has come for a minute, it ends its processes, undoes its changes, and removes its directory and itself.
package remote
