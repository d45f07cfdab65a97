// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"time"
)

// Sleep waits for d, or returns the error of a context that ends meanwhile.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
