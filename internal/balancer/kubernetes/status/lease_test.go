// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/jeoul/jeoul/internal/host/clock"
)

// TestLeaseBesideAnotherClock: a Lease that another balancer renews is left to it however far apart the clocks are, and
// taken over when it renews it no more.
func TestLeaseBesideAnotherClock(t *testing.T) {
	for name, skew := range map[string]time.Duration{"behind": -time.Hour, "the same": 0, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				there := func() metav1.MicroTime { return metav1.NewMicroTime(time.Now().Add(skew)) }
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "jeoul-system", Name: "jeoul"},
					Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("other"),
						LeaseDurationSeconds: ptr.To[int32](15), AcquireTime: ptr.To(there()),
						RenewTime: ptr.To(there())}}
				client := fake.NewClientset(lease)
				ctx, stop := context.WithCancel(t.Context())
				var leads atomic.Bool
				var running sync.WaitGroup
				running.Go(func() {
					l := Lease{Namespace: lease.Namespace, Name: lease.Name, Identity: "this"}
					if err := l.Hold(ctx, client, func(leading context.Context) {
						leads.Store(true)
						<-leading.Done()
					}, func(string) {}); err != nil {
						t.Error(err)
					}
				})
				for range 30 {
					lease.Spec.RenewTime = ptr.To(there())
					leases := client.CoordinationV1().Leases(lease.Namespace)
					if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
						t.Fatal(err)
					}
					if err := clock.Sleep(ctx, retryPeriod); err != nil {
						t.Fatal(err)
					}
					if leads.Load() {
						t.Fatal("this balancer holds the Lease that the other one renews")
					}
				}
				// It looks every one to 2.2 periods: once to see the last renewal, and once more when that is over.
				if err := clock.Sleep(ctx, leaseDuration+5*retryPeriod); err != nil {
					t.Fatal(err)
				}
				if !leads.Load() {
					t.Error("this balancer did not take over the expired Lease")
				}
				stop()
				running.Wait()
			})
		})
	}
}
