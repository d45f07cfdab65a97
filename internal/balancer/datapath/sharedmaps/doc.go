// SPDX-License-Identifier: Apache-2.0

// Package sharedmaps has the maps that outlive a generation: counters, flows, and the state of schedulers and limits.
//
// New creates the maps that are missing or too small, and reuses the others. A Move copies flows into tables of another
// size or layout while packets arrive; a Ledger corrects counters where an index has another owner or a map was
// replaced. OtherLayouts finds maps in another build's layout, which are read field by field.
//
// The package guarantees that neither counts nor flows are lost with a replaced map. It attaches no program, and knows
// no pin or process.
package sharedmaps
