// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

func balanced(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
}

func sliceOf(service string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: service + "-1",
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
}

// follow has a Watcher run until the test ends.
func follow(t *testing.T, w *Watcher) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
}

func names(w *Watcher) (list []string) {
	for _, s := range w.Cluster().Services {
		list = append(list, model.Key(s))
	}
	slices.Sort(list)
	return list
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testenv.Eventually(t, time.Minute, what, holds)
}

// TestClusterGoesBack: what vanishes because the cluster went back in time stays in the picture, with its endpoints,
// and is named; what is there is as the cluster says, and what is made again, or deleted after, too.
func TestClusterGoesBack(t *testing.T) {
	client := fake.NewClientset(balanced("old"), balanced("new"), sliceOf("new"))
	w, err := New(client, "")
	if err != nil {
		t.Fatal(err)
	}
	var revision atomic.Value
	revision.Store("1000")
	w.askEvery, w.settle = 5*time.Millisecond, 0
	var asked atomic.Int32
	w.revision = func(context.Context) (string, error) { asked.Add(1); return revision.Load().(string), nil }
	follow(t, w)
	eventually(t, "both are there, at a revision", func() bool {
		return w.Synced() && len(names(w)) == 2 && asked.Load() > 1
	})

	// The backup has an older one only. Its watch says nothing of that.
	lost := fake.NewClientset(balanced("old"))
	w.mu.Lock()
	for kind, s := range sourcesOf(lost, "") {
		w.sources[kind] = s
	}
	w.mu.Unlock()
	revision.Store("900")
	eventually(t, "what vanished is kept", func() bool {
		kept, _ := w.Kept()
		return w.Synced() && slices.Equal(kept, []string{"shop/new"})
	})
	if got := names(w); !slices.Equal(got, []string{"shop/new", "shop/old"}) || len(w.Cluster().Slices) != 1 {
		t.Errorf("the picture has %v, and %d slices", got, len(w.Cluster().Slices))
	}
	services := lost.CoreV1().Services("shop")
	if _, err := services.Create(t.Context(), balanced("new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is the cluster's again", func() bool {
		got := names(w) // which looks
		kept, _ := w.Kept()
		return len(got) == 2 && len(kept) == 0
	})
	if err := services.Delete(t.Context(), "new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is deleted", func() bool { return slices.Equal(names(w), []string{"shop/old"}) })
}

// TestWatchExpires: a watch that the API server has forgotten (410) is counted, and all is listed anew.
func TestWatchExpires(t *testing.T) {
	client := fake.NewClientset(balanced("old"))
	var expired atomic.Bool
	gone := apierrors.NewResourceExpired("too old resource version: 1 (1000)")
	client.PrependWatchReactor("services", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
		if expired.Swap(true) {
			return false, nil, nil
		}
		stream := apiwatch.NewFakeWithChanSize(1, false)
		status := gone.Status()
		stream.Error(&status)
		return true, stream, nil
	})
	w, err := New(client, "")
	if err != nil {
		t.Fatal(err)
	}
	follow(t, w)
	eventually(t, "the watch expired, and all is known", func() bool {
		state := w.States()[Services]
		return state.Expired == 1 && state.Problem == "" && w.Synced()
	})
	if _, err := client.CoreV1().Services("shop").Create(t.Context(), balanced("new"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what is new is seen", func() bool { return len(names(w)) == 2 })
}
