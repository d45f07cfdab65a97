// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/jeoul/jeoul/internal/balancer/ops"
)

// changeText describes the changes that operations have made to a backend.
func changeText(o *ops.Overlay) string {
	var parts []string
	if d := o.Drain; d != nil {
		parts = append(parts, d.StateName())
	}
	if w := o.Weight; w != nil {
		parts = append(parts, fmt.Sprintf("weight %d in place of %d", w.Value, w.Configured))
	}
	if o.Forced != nil {
		parts = append(parts, "enable by force")
	}
	if !o.Absent.IsZero() {
		parts = append(parts, "not found any more")
	}
	return strings.Join(parts, ", ")
}

// changedAt is when the first of the operations was done, and changedBy the name of the one who has done it.
func changedAt(o *ops.Overlay) time.Time { at, _ := changes(o); return at }
func changedBy(o *ops.Overlay) string    { _, by := changes(o); return by }

func changes(o *ops.Overlay) (time.Time, string) {
	switch {
	case o.Drain != nil:
		return o.Drain.At, o.Drain.By
	case o.Weight != nil:
		return o.Weight.At, o.Weight.By
	case o.Forced != nil:
		return o.Forced.At, o.Forced.By
	}
	return time.Time{}, ""
}
