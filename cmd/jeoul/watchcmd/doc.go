// SPDX-License-Identifier: Apache-2.0

// Package watchcmd holds the commands that show a running balancer: status, get, describe, top, trace, capture and
// dashboard, and the names that a shell completes.
package watchcmd
