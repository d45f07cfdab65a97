// SPDX-License-Identifier: Apache-2.0

// Package flowsync is the data plane's part of what balancers tell each other of flows: which proven flows others have
// yet to be told of, how a flow of theirs is taken into the table of this one, and which of those that were refused a
// change has brought the backend of. Package handover carries all of it between balancers.
package flowsync
