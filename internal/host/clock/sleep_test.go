// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v, want a minute and no error", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v, want a second and context.Canceled", time.Since(began), err)
		}
	})
}
