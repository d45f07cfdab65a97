// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Durations of a Lease, after which another balancer writes the status if the holder has died. These are the values of
// Kubernetes' own controllers. Traffic does not depend on them.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// Lease is the object by which balancers elect the one that writes the status.
type Lease struct {
	Namespace, Name string
	// Identity is this balancer's name in the election. No two processes hold the Lease at once, even with the same
	// name.
	Identity string
	// Recorder records Events about changes of the holder; nil: none are.
	Recorder Recorder
}

// leaseEvents passes client-go's Events of the Lease to a Recorder.
type leaseEvents struct{ recorder Recorder }

// Eventf makes an Event.
func (e leaseEvents) Eventf(on runtime.Object, kind, reason, message string, args ...any) {
	e.recorder.Eventf(on, nil, kind, reason, "Elect", message, args...)
}

// Hold takes part in the election until the context ends, and calls lead each time that this balancer holds the Lease;
// its context ends when it no longer does. who is called with the identity of each new holder.
func (l Lease) Hold(ctx context.Context, client kubernetes.Interface, lead func(context.Context),
	who func(identity string)) error {
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity + "_" + string(uuid.NewUUID())}}
	if l.Recorder != nil {
		lock.LockConfig.EventRecorder = leaseEvents{l.Recorder}
	}
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: lock,
			LeaseDuration: leaseDuration,
			RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true, Name: l.Name,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: func() {},
				OnNewLeader: who}})
		if err != nil {
			return err
		}
		elector.Run(ctx)
	}
	return nil
}
