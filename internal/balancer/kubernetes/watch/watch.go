// SPDX-License-Identifier: Apache-2.0

// Package watch follows the objects of a Kubernetes cluster: a snapshot, a signal of changes, and its age. When a watch
// ends, the API server does not answer, or the cluster is rolled back to an earlier state, the last objects stay.
package watch

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
)

// Kind is one of the kinds of objects that are followed.
type Kind string

// The kinds.
const (
	Services       Kind = "services"
	EndpointSlices Kind = "endpointslices"
	Nodes          Kind = "nodes"
	ConfigMaps     Kind = "configmaps"
	// Namespaces and the kinds below are followed for Gateways.
	Namespaces      Kind = "namespaces"
	Secrets         Kind = "secrets"
	GatewayClasses  Kind = "gatewayclasses"
	Gateways        Kind = "gateways"
	TCPRoutes       Kind = "tcproutes"
	UDPRoutes       Kind = "udproutes"
	HTTPRoutes      Kind = "httproutes"
	ReferenceGrants Kind = "referencegrants"
)

// listTimeout is the time after which a list without an end is a problem. API servers before 1.27, and proxies that
// hold bookmarks back, accept a request for a list as a stream, and never send its end.
const listTimeout = 30 * time.Second

// State is the state of the watch of a kind.
type State struct {
	// Synced: all objects were listed once.
	Synced bool
	// Since is the time since which the API server has failed to list its objects, and Problem the error; zero while it
	// answers, except that States has a list without an end as a problem.
	Since   time.Time
	Problem string
	// Listing is the time since which the API server has been asked for all objects and has not sent the end; zero
	// while it has.
	Listing time.Time
	// Expired counts the watches that the API server ended because their resource version had expired (410), after
	// which all objects were listed again.
	Expired int
}

// Watcher follows a cluster.
type Watcher struct {
	changed chan struct{}
	// wentBack signals that a list shows a rollback of the cluster.
	wentBack chan struct{}
	client   kubernetes.Interface
	// revision queries the cluster's present resource version.
	revision func(context.Context) (string, error)
	// gateways queries the cluster's kinds of the Gateway API; nil: none is followed.
	gateways  *gatewayKinds
	mu        sync.Mutex
	informers map[Kind]cache.SharedIndexInformer
	sources   map[Kind]source
	states    map[Kind]State
	// vanished are the objects that vanished in a rollback; settled is the end of rollbackGrace after it.
	vanished vanished
	settled  time.Time
	// revisionInterval and rollbackGrace are the constants of these names, which tests shorten.
	revisionInterval, rollbackGrace time.Duration
	// revisionState is the state of the queries for the resource version.
	revisionState State
}

// source lists and watches a kind.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
	kind  runtime.Object
}

// New returns a watcher that follows nothing yet. PoolsMap is the "namespace/name" of a ConfigMap that is followed too;
// empty: none is.
func New(client kubernetes.Interface, poolsMap string) (*Watcher, error) {
	w := &Watcher{informers: map[Kind]cache.SharedIndexInformer{}, sources: map[Kind]source{}, client: client,
		changed: make(chan struct{}, 1), wentBack: make(chan struct{}, 1), states: map[Kind]State{},
		revision: revisionOf(client), revisionInterval: revisionInterval, rollbackGrace: rollbackGrace}
	for kind, s := range sourcesOf(client, poolsMap) {
		if err := w.addInformer(kind, s); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func sourcesOf(client kubernetes.Interface, poolsMap string) map[Kind]source {
	core, all := client.CoreV1(), metav1.NamespaceAll
	sources := map[Kind]source{
		Services:       sourceOf(core.Services(all), &corev1.Service{}),
		EndpointSlices: sourceOf(client.DiscoveryV1().EndpointSlices(all), &discoveryv1.EndpointSlice{}),
		Nodes:          sourceOf(core.Nodes(), &corev1.Node{}),
	}
	if namespace, name, found := strings.Cut(poolsMap, "/"); found {
		only := "metadata.name=" + name
		maps := core.ConfigMaps(namespace)
		sources[ConfigMaps] = source{
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = only
				return maps.List(ctx, o)
			},
			func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				o.FieldSelector = only
				return maps.Watch(ctx, o)
			}, &corev1.ConfigMap{}}
	}
	return sources
}

// lister has the methods of client-go for a kind of objects.
type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}

func sourceOf[L runtime.Object](client lister[L], kind runtime.Object) source {
	return source{func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, o)
	}, client.Watch, kind}
}

// addInformer adds the informer of a kind.
func (w *Watcher) addInformer(kind Kind, s source) error {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			w.setListing(kind, true)
			list, err := s.list(ctx, o)
			w.updateState(kind, err)
			if err != nil {
				return nil, err
			}
			if w.isListAfterRollback(kind, listRevision(list)) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			w.setListing(kind, false)
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			w.setListing(kind, ptr.Deref(o.SendInitialEvents, false))
			stream, err := s.watch(ctx, o)
			w.updateState(kind, err)
			if err != nil {
				return nil, err
			}
			return apiwatch.Filter(stream, func(e apiwatch.Event) (apiwatch.Event, bool) {
				if e.Type == apiwatch.Error {
					w.updateState(kind, apierrors.FromObject(e.Object))
				}
				if e.Type != apiwatch.Bookmark {
					return e, true
				}
				m, err := meta.Accessor(e.Object)
				if err != nil || m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
					return e, true
				}
				if w.isListAfterRollback(kind, m.GetResourceVersion()) {
					return e, false // the list gets no end, until its informer ends
				}
				w.setListing(kind, false)
				return e, true
			}), nil
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, w.client), s.kind,
		cache.SharedIndexInformerOptions{ObjectDescription: string(kind)})
	if err := informer.SetTransform(shrink); err != nil {
		return err
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.notifyChanged() },
		UpdateFunc: func(any, any) { w.notifyChanged() },
		DeleteFunc: func(any) { w.notifyChanged() },
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.informers[kind], w.sources[kind], w.states[kind] = informer, s, State{Expired: w.states[kind].Expired}
	return err
}

// addressFields are the fields of a manager of the addresses in a Service's status, without its others. Services share
// them.
var addressFields = metav1.NewFieldsV1(`{"f:status":{"f:loadBalancer":{}}}`)

// shrink drops the fields that are not read, which are most of an object.
func shrink(object any) (any, error) {
	m, err := meta.Accessor(object)
	if err != nil { // a tombstone
		return object, nil
	}
	var managers []metav1.ManagedFieldsEntry
	_, isService := object.(*corev1.Service)
	if _, isGateway := object.(*v1.Gateway); isService || isGateway { // whose status says who wrote it
		for _, entry := range m.GetManagedFields() {
			kept := metav1.ManagedFieldsEntry{Manager: entry.Manager, Subresource: entry.Subresource}
			if isService && model.ManagesAddresses(entry) {
				kept.FieldsV1 = addressFields
			}
			managers = append(managers, kept)
		}
	}
	if isService {
		delete(m.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	} else {
		m.SetAnnotations(nil)
	}
	m.SetManagedFields(managers)
	if node, isNode := object.(*corev1.Node); isNode {
		node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	}
	return object, nil
}

// updateState records whether the API server has answered.
func (w *Watcher) updateState(kind Kind, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.states[kind].next(err)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		state.Expired++
	}
	w.states[kind] = state
}

// setListing records that the API server has been asked for all objects of a kind, or that it has sent them.
func (w *Watcher) setListing(kind Kind, listing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.states[kind]
	switch {
	case !listing:
		state.Listing = time.Time{}
	case state.Listing.IsZero():
		state.Listing = time.Now()
	}
	w.states[kind] = state
}

// listRevision returns the resource version of a list.
func listRevision(list runtime.Object) string {
	m, err := meta.ListAccessor(list)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}

// next returns a state with another answer of the API server.
func (s State) next(err error) State {
	switch {
	case err == nil:
		s.Since, s.Problem = time.Time{}, ""
	case s.Since.IsZero():
		s.Since, s.Problem = time.Now(), errorText(err)
	default:
		s.Problem = errorText(err)
	}
	return s
}

// errorText returns the text of an error without the URL of the request.
func errorText(err error) string {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err.Error()
	}
	return err.Error()
}

// notifyChanged signals that objects may have changed.
func (w *Watcher) notifyChanged() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Run follows the cluster until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	for ctx.Err() == nil && w.follow(ctx) {
		w.relist()
	}
}

// follow follows the cluster until the context ends or the cluster is rolled back; it reports the latter.
func (w *Watcher) follow(ctx context.Context) (rolledBack bool) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var running sync.WaitGroup
	for _, informer := range w.allInformers() {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if w.gateways != nil {
		running.Go(func() { w.followGateways(ctx, &running) })
	}
	rolledBack = w.awaitRollback(ctx)
	end()
	running.Wait()
	return rolledBack
}

// allInformers returns the informers.
func (w *Watcher) allInformers() map[Kind]cache.SharedIndexInformer {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.informers)
}

// Changed has a value after each change.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Synced reports whether all objects that Services need were listed once: Services do not wait for Gateways.
func (w *Watcher) Synced() bool {
	return w.hasSettled() && w.haveSynced(Services, EndpointSlices, Nodes, ConfigMaps)
}

// haveSynced reports whether all objects of kinds were listed once, where those are followed; without kinds: of all.
func (w *Watcher) haveSynced(kinds ...Kind) bool {
	for kind, informer := range w.allInformers() {
		if (len(kinds) == 0 || slices.Contains(kinds, kind)) && !informer.HasSynced() {
			return false
		}
	}
	return true
}

// States returns the state of each kind's watch. A list that has had no end for listTimeout is a problem.
func (w *Watcher) States() map[Kind]State {
	w.mu.Lock()
	defer w.mu.Unlock()
	states := maps.Clone(w.states)
	for kind, state := range states {
		state.Synced = w.informers[kind].HasSynced()
		if state.Problem == "" && !state.Listing.IsZero() && time.Since(state.Listing) > listTimeout {
			state.Since, state.Problem = state.Listing, "it has not sent all of them yet; behind a proxy that holds "+
				"bookmarks back, or before Kubernetes 1.27, set KUBE_FEATURE_WatchListClient=false"
		}
		states[kind] = state
	}
	return states
}

// Cluster returns the cluster's objects, in no order. They must not be changed.
func (w *Watcher) Cluster() model.Cluster {
	return w.withVanished(model.Cluster{Services: listed[*corev1.Service](w, Services),
		Slices: listed[*discoveryv1.EndpointSlice](w, EndpointSlices), Nodes: listed[*corev1.Node](w, Nodes)})
}

// Services returns the cluster's Services, in no order. They must not be changed.
func (w *Watcher) Services() []*corev1.Service {
	return w.withVanished(model.Cluster{Services: listed[*corev1.Service](w, Services)}).Services
}

// ConfigMap returns the followed ConfigMap; nil if there is none.
func (w *Watcher) ConfigMap() *corev1.ConfigMap {
	if found := listed[*corev1.ConfigMap](w, ConfigMaps); len(found) > 0 {
		return found[0]
	}
	return nil
}

// listed returns the objects of a kind, in no order: of thousands, sorting takes longer than listing.
func listed[T metav1.Object](w *Watcher, kind Kind) []T {
	informer := w.allInformers()[kind]
	if informer == nil {
		return nil
	}
	objects := informer.GetStore().List()
	list := make([]T, 0, len(objects))
	for _, object := range objects {
		list = append(list, object.(T))
	}
	return list
}

func sortByName[T metav1.Object](list []T) {
	slices.SortFunc(list, func(a, b T) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
}
