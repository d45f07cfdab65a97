// SPDX-License-Identifier: Apache-2.0

// Package flowsync is the data plane's part of the synchronisation of flows between balancers: it finds the proven
// flows that others have yet to be notified of, takes flows of theirs into this one's table, and notes which of the
// refused ones could be taken after a change has brought their backend. Package handover carries all of it between
// balancers.
package flowsync
