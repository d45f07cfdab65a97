// SPDX-License-Identifier: Apache-2.0

package report

// koreanWire are about packet-level loads.
var koreanWire = []phrase{}
