// SPDX-License-Identifier: Apache-2.0

// Package flowsync is the data plane's part of the synchronisation of flows between balancers: it finds the proven
// flows of which others are to be notified, merges their flows into this balancer's table, and notes which of the
// refused ones it could accept after a change has added their backend. Package handover has the protocol between
// balancers.
package flowsync
