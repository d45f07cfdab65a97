// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayfake "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/fake"

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
	testenv.Eventually(t, testenv.WaitLimit, what, holds)
}

// TestClusterGoesBack: a Service that vanishes because the cluster went back in time stays in the known state, with its
// endpoints, and is named; those that are there, made again, or deleted afterwards, are as in the cluster.
func TestClusterGoesBack(t *testing.T) {
	client := fake.NewClientset(balanced("old"), balanced("new"), sliceOf("new"))
	w, err := New(client, "")
	if err != nil {
		t.Fatal(err)
	}
	var revision atomic.Value
	revision.Store("1000")
	w.revisionInterval, w.rollbackGrace = 5*time.Millisecond, 0
	var requests atomic.Int32
	w.revision = func(context.Context) (string, error) { requests.Add(1); return revision.Load().(string), nil }
	follow(t, w)
	eventually(t, "both are there, at a revision", func() bool {
		return w.Synced() && len(names(w)) == 2 && requests.Load() > 1
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
		t.Errorf("the known state has %v, and %d slices", got, len(w.Cluster().Slices))
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

// restored is an API server's Services, of a cluster whose etcd may be restored from a backup.
type restored struct {
	mu       sync.Mutex
	revision string
	list     corev1.ServiceList
	stream   *apiwatch.FakeWatcher
}

// become has the cluster be at a revision, with Services.
func (r *restored) become(revision string, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revision, r.list = revision, corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: revision}}
	for _, name := range names {
		r.list.Items = append(r.list.Items, *balanced(name))
	}
}

// source lists the Services, also as a stream.
func (r *restored) source() source {
	return source{func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.list.DeepCopy(), nil
	}, func(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stream = apiwatch.NewFakeWithChanSize(10, false)
		if o.SendInitialEvents != nil && *o.SendInitialEvents {
			for i := range r.list.Items {
				r.stream.Add(r.list.Items[i].DeepCopy())
			}
			r.stream.Action(apiwatch.Bookmark, &corev1.Service{ObjectMeta: metav1.ObjectMeta{
				ResourceVersion: r.revision, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
		}
		return r.stream, nil
	}, &corev1.Service{}}
}

// TestBumpedClusterGoesBack: a backup of etcd that is restored with a higher revision, as etcd's guide has it, is a
// rollback as well, where all is listed again (410) and where the revision is asked for; a list of a cluster that has
// gone on is none.
func TestBumpedClusterGoesBack(t *testing.T) {
	for _, test := range []struct {
		name, revision  string
		streams, expire bool
		kept            []string
	}{
		{"a list", "1000001000", false, true, []string{"shop/new"}},
		{"a stream", "1000001000", true, true, []string{"shop/new"}},
		{"an older list", "900", true, true, []string{"shop/new"}},
		{"the revision alone", "1000001000", true, false, []string{"shop/new"}},
		{"a list without a restoration", "500000", false, true, nil},
		{"a stream without a restoration", "500000", true, true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bumpedClusterGoesBack(t, test.revision, test.streams, test.expire, test.kept)
			})
		})
	}
}

func bumpedClusterGoesBack(t *testing.T, revision string, streams, expire bool, kept []string) {
	client, r := fake.NewClientset(), &restored{}
	w, err := New(client, "")
	if err != nil {
		t.Fatal(err)
	}
	if streams {
		w.client = streamingClient{client}
	}
	if err := w.addInformer(Services, r.source()); err != nil {
		t.Fatal(err)
	}
	w.revision = func(context.Context) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if expire {
			return "", nil // the list alone is to show it
		}
		return r.revision, nil
	}
	r.become("1000", "old", "new")
	w.client = client
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	time.Sleep(revisionInterval + time.Second)
	r.become(revision, "old")
	if expire {
		gone := apierrors.NewResourceExpired("too old resource version").Status()
		r.stream.Error(&gone)
	}
	for range 10 * (revisionInterval + rollbackGrace + 5*time.Second) / time.Second {
		time.Sleep(time.Second / 10)
		if got := names(w); w.Synced() && kept != nil && len(got) != 2 {
			t.Fatalf("the known state has %v only", got)
		}
	}
	if got, _ := w.Kept(); !slices.Equal(got, kept) || w.RolledBack().IsZero() != (kept == nil) {
		t.Errorf("%v are kept after a rollback at %v; want %v", got, w.RolledBack(), kept)
	}
	if got := names(w); len(got) != 1+len(kept) {
		t.Errorf("the known state has %v", got)
	}
	stop()
	running.Wait()
}

// TestGatewaysGoBack: a Gateway that vanishes because the cluster went back in time stays in the known state with its
// route and the Service that this leads to, and both are named; those that are made again, or deleted afterwards, are
// as in the cluster.
func TestGatewaysGoBack(t *testing.T) {
	inner := func(name string) *corev1.Service {
		s := balanced(name)
		s.Spec.Type = corev1.ServiceTypeClusterIP
		return s
	}
	of := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	client := fake.NewClientset(inner("pods"), sliceOf("pods"))
	list := &metav1.APIResourceList{GroupVersion: v1.GroupVersion.String()}
	for _, kind := range []Kind{Gateways, TCPRoutes} {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: string(kind)})
	}
	client.Resources = append(client.Resources, list)
	w, err := New(client, "")
	if err != nil {
		t.Fatal(err)
	}
	full := gatewayfake.NewSimpleClientset(&v1.TCPRoute{ObjectMeta: of("mail")})
	edge := &v1.Gateway{ObjectMeta: of("edge")} // of whose kind the fake knows no plural
	if _, err := full.GatewayV1().Gateways("shop").Create(t.Context(), edge, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.FollowGateways(client, full, false); err != nil {
		t.Fatal(err)
	}
	var revision atomic.Value
	revision.Store("1000")
	w.revisionInterval, w.rollbackGrace = 5*time.Millisecond, 0
	var requests atomic.Int32
	w.revision = func(context.Context) (string, error) { requests.Add(1); return revision.Load().(string), nil }
	follow(t, w)
	eventually(t, "all is there, at a revision", func() bool {
		return w.Synced() && len(w.Gateways().Gateways) == 1 && requests.Load() > 1
	})

	empty, gateways := fake.NewClientset(), gatewayfake.NewSimpleClientset()
	w.mu.Lock()
	for kind, s := range sourcesOf(empty, "") {
		w.sources[kind] = s
	}
	w.sources[Gateways] = sourceOf(gateways.GatewayV1().Gateways(""), &v1.Gateway{})
	w.sources[TCPRoutes] = sourceOf(gateways.GatewayV1().TCPRoutes(""), &v1.TCPRoute{})
	w.mu.Unlock()
	revision.Store("900")
	eventually(t, "what vanished is kept", func() bool {
		return slices.Equal(w.KeptGateways(), []string{"Gateway shop/edge", "TCPRoute shop/mail"})
	})
	if o, c := w.Gateways(), w.Cluster(); len(o.TCPRoutes) != 1 || len(c.Services) != 1 || len(c.Slices) != 1 {
		t.Errorf("routes %d, Services %d, slices %d", len(o.TCPRoutes), len(c.Services), len(c.Slices))
	}
	api := gateways.GatewayV1().Gateways("shop")
	if _, err := api.Create(t.Context(), edge, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is the cluster's again", func() bool {
		return slices.Equal(w.KeptGateways(), []string{"TCPRoute shop/mail"})
	})
	if err := api.Delete(t.Context(), "edge", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is deleted", func() bool { return len(w.Gateways().Gateways) == 0 })
}

// TestChangeDuringRequest: a Service that changes while the resource version is asked for is no rollback, though the
// answer is older than the change.
func TestChangeDuringRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, stream := fake.NewClientset(balanced("web")), apiwatch.NewFake()
		client.PrependWatchReactor("services", clienttesting.DefaultWatchReactor(stream, nil))
		w, err := New(client, "")
		if err != nil {
			t.Fatal(err)
		}
		requests := 0
		w.revision = func(context.Context) (string, error) {
			if requests++; requests > 1 {
				return "1001", nil
			}
			changed := balanced("web")
			changed.ResourceVersion = "1001"
			stream.Modify(changed)
			synctest.Wait() // until the Watcher has seen it
			return "1000", nil
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		time.Sleep(3*revisionInterval + time.Second)
		if !w.RolledBack().IsZero() || requests != 3 || w.lastRevision(Services) != 1001 {
			t.Errorf("after %d requests and version %d, a rollback was found at %v", requests, w.lastRevision(Services),
				w.RolledBack())
		}
		stop()
		running.Wait()
	})
}

// TestWatchExpires: a watch that the API server has forgotten (410) is counted, and all is listed again.
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

// TestListDoesNotEnd: a list whose end the API server does not send is a problem after a while, also where all objects
// were listed before, until the end is there.
func TestListDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		streams := make(chan *apiwatch.FakeWatcher, 10)
		client.PrependWatchReactor("services", func(clienttesting.Action) (bool, apiwatch.Interface, error) {
			stream := apiwatch.NewFake()
			streams <- stream
			return true, stream, nil
		})
		w, err := New(streamingClient{client}, "")
		if err != nil {
			t.Fatal(err)
		}
		w.revision = func(context.Context) (string, error) { return "7", nil }
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		check := func(when, want string) {
			t.Helper()
			synctest.Wait()
			state := w.States()[Services]
			if !strings.Contains(state.Problem, want) || (state.Problem == "") != (want == "") {
				t.Errorf("%s the problem is %q; want %q", when, state.Problem, want)
			}
		}
		asked := time.Now()
		check("at once", "")
		time.Sleep(listTimeout + time.Second)
		check("without an end", "not sent all of them")
		if since := w.States()[Services].Since; !since.Equal(asked) {
			t.Errorf("the problem is there since %v; want %v", since, asked)
		}
		end := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7",
			Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		stream := <-streams
		stream.Action(apiwatch.Bookmark, end)
		check("after the end", "")
		time.Sleep(2 * listTimeout)
		check("while nothing changes", "")
		gone := apierrors.NewResourceExpired("too old resource version: 7 (1000)").Status()
		stream.Error(&gone)
		time.Sleep(2 * listTimeout)
		check("without an end of a later list", "not sent all of them")
		stop()
		running.Wait()
	})
}

// streamingClient is a fake client of an API server that lists by streams: it lacks the fake's method that denies it.
type streamingClient struct{ kubernetes.Interface }

// TestShrink: of an object whose addresses may be another controller's, the managers of its fields are kept; of those
// of a Service it stays known whether they have written its addresses.
func TestShrink(t *testing.T) {
	managed := metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "m", Subresource: "status", FieldsV1: metav1.NewFieldsV1("{}")}}}
	for _, test := range []struct {
		object                metav1.Object
		managers, annotations int
	}{
		{&corev1.Service{ObjectMeta: *managed.DeepCopy()}, 1, 1},
		{&v1.Gateway{ObjectMeta: *managed.DeepCopy()}, 1, 0},
		{&corev1.Node{ObjectMeta: *managed.DeepCopy()}, 0, 0},
	} {
		if _, err := shrink(test.object); err != nil {
			t.Fatal(err)
		}
		got := test.object.GetManagedFields()
		if len(got) != test.managers || len(test.object.GetAnnotations()) != test.annotations {
			t.Errorf("%T has the managers %v and the annotations %v", test.object, got, test.object.GetAnnotations())
		}
		if len(got) == 1 && (got[0].Manager != "m" || got[0].Subresource != "status" || got[0].FieldsV1 != nil) {
			t.Errorf("the manager of %T is %+v", test.object, got[0])
		}
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "m", Subresource: "status", FieldsV1: metav1.NewFieldsV1(
			`{"f:status":{"f:conditions":{},"f:loadBalancer":{"f:ingress":{}}}}`)},
		{Manager: "n", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{}}}`)}}}}
	for range 2 { // client-go may transform an object again
		if _, err := shrink(s); err != nil {
			t.Fatal(err)
		}
		if !model.HasAddressesOf(s, "m") || model.HasAddressesOf(s, "n") {
			t.Errorf("the managers are %+v", s.ManagedFields)
		}
		if text := s.ManagedFields[0].FieldsV1.GetRawString(); strings.Contains(text, "f:conditions") {
			t.Errorf("the fields %s are kept", text)
		}
	}
}
