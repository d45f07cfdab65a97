// SPDX-License-Identifier: Apache-2.0

package mapmem

import (
	"sync"
	"testing"

	"github.com/jeoul/jeoul/internal/test/testenv"
)

// TestGraceInTheBackground frees memory that was waiting when a grace period began, and not memory that came later.
func TestGraceInTheBackground(t *testing.T) {
	var mu sync.Mutex
	g := NewGrace(&mu)
	began, pass := make(chan struct{}), make(chan struct{})
	g.Synchronize = func() { began <- struct{}{}; <-pass }
	var freed []int
	mu.Lock()
	g.AfterGrace(func() { freed = append(freed, 1) })
	mu.Unlock()
	<-began
	mu.Lock()
	g.AfterGrace(func() { freed = append(freed, 2) })
	mu.Unlock()
	pass <- struct{}{}
	<-began // the second grace period: the first is over
	mu.Lock()
	if len(freed) != 1 || freed[0] != 1 {
		t.Errorf("after the first grace period %v were freed", freed)
	}
	mu.Unlock()
	pass <- struct{}{}
	testenv.Eventually(t, testenv.WaitLimit, "the second is freed and no goroutine waits any more", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(freed) == 2 && !g.running
	})
}

// TestGraceWaitedFor frees memory at once that a caller cannot do without, while a goroutine waits in the background
// for the same: it must not free memory that came since.
func TestGraceWaitedFor(t *testing.T) {
	var mu sync.Mutex
	g := NewGrace(&mu)
	began, pass := make(chan struct{}), make(chan struct{})
	background := func() { began <- struct{}{}; <-pass }
	g.Synchronize = background
	var freed []int
	mu.Lock()
	g.AfterGrace(func() { freed = append(freed, 1) })
	mu.Unlock()
	<-began
	mu.Lock()
	g.Synchronize = func() {}
	if !g.Wait() || len(freed) != 1 {
		t.Errorf("waited for, %v were freed", freed)
	}
	g.Synchronize = background
	g.AfterGrace(func() { freed = append(freed, 2) })
	mu.Unlock()
	pass <- struct{}{}
	<-began
	mu.Lock()
	if len(freed) != 1 {
		t.Errorf("%v were freed, and 2 has had no grace period", freed)
	}
	g.Close()
	mu.Unlock()
	pass <- struct{}{}
	testenv.Eventually(t, testenv.WaitLimit, "no goroutine waits any more", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !g.running
	})
	if len(freed) != 1 {
		t.Errorf("closed, it freed %v", freed)
	}
}
