// SPDX-License-Identifier: Apache-2.0

// Package operatecmd holds the commands that change a running balancer: backend, balancer, reload, apply and diff.
package operatecmd
