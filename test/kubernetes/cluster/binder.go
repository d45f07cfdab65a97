// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// binder stands in for the scheduler: it binds each pod to the ready node with the fewest pods among those that
// the pod's node selector, its required affinity by metadata.name (as a DaemonSet's pods have it) and its
// tolerations allow. A pod that no node may have waits for the next change of a node.
type binder struct {
	client kubernetes.Interface
	pods   listers.PodLister
	nodes  listers.NodeLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	// bound are the nodes of pods as far as this binder has bound them, because its lister is behind.
	bound map[types.UID]string
}

// startBinder starts a binder; stop ends it and waits for its end.
func startBinder(client kubernetes.Interface) (stop func()) {
	factory := informers.NewSharedInformerFactory(client, 0)
	b := &binder{client: client, pods: factory.Core().V1().Pods().Lister(), nodes: factory.Core().V1().Nodes().Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
		bound: map[types.UID]string{}}
	enqueue := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			b.queue.Add(cache.MetaObjectToName(pod))
		}
	}
	enqueueAll := func() {
		pods, _ := b.pods.List(labels.Everything())
		for _, pod := range pods {
			enqueue(pod)
		}
	}
	factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }})
	factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { enqueueAll() }, UpdateFunc: func(any, any) { enqueueAll() }})
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		factory.WaitForCacheSync(ctx.Done())
		for b.bindNext(ctx) {
		}
	}()
	return func() {
		cancel()
		b.queue.ShutDown()
		<-done
		factory.Shutdown()
	}
}

func (b *binder) bindNext(ctx context.Context) bool {
	name, ended := b.queue.Get()
	if ended {
		return false
	}
	defer b.queue.Done(name)
	if err := b.bind(ctx, name); err != nil {
		b.queue.AddRateLimited(name)
		return true
	}
	b.queue.Forget(name)
	return true
}

func (b *binder) bind(ctx context.Context, name cache.ObjectName) error {
	pod, err := b.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil || pod.Spec.NodeName != "" || b.bound[pod.UID] != "" {
		return nil
	}
	node, err := b.selectNode(pod)
	if err != nil || node == "" {
		return err
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	b.bound[pod.UID] = node
	return nil
}

// selectNode returns the node for a pod, or nothing.
func (b *binder) selectNode(pod *corev1.Pod) (string, error) {
	nodes, err := b.nodes.List(labels.SelectorFromSet(pod.Spec.NodeSelector))
	if err != nil {
		return "", err
	}
	nodes = slices.DeleteFunc(nodes, func(node *corev1.Node) bool { return !permitted(pod, node) })
	if len(nodes) == 0 {
		return "", nil
	}
	count, err := b.countPods()
	if err != nil {
		return "", err
	}
	return slices.MinFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(cmp.Compare(count[a.Name], count[b.Name]), cmp.Compare(a.Name, b.Name))
	}).Name, nil
}

// countPods returns the number of pods of each node.
func (b *binder) countPods() (map[string]int, error) {
	pods, err := b.pods.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	there := map[types.UID]bool{}
	for _, pod := range pods {
		there[pod.UID] = true
		count[cmp.Or(pod.Spec.NodeName, b.bound[pod.UID])]++
	}
	maps.DeleteFunc(b.bound, func(uid types.UID, _ string) bool { return !there[uid] })
	return count, nil
}

// permitted reports whether a node may have a pod, its node selector apart.
func permitted(pod *corev1.Pod, node *corev1.Node) bool {
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return ready && toleratesTaints(pod, node) && matchesNames(pod, node)
}

func toleratesTaints(pod *corev1.Pod, node *corev1.Node) bool {
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		tolerated := taint.Effect == corev1.TaintEffectPreferNoSchedule ||
			slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
				matches := t.Operator == corev1.TolerationOpExists && (t.Key == "" || t.Key == taint.Key) ||
					t.Key == taint.Key && t.Value == taint.Value
				return matches && (t.Effect == "" || t.Effect == taint.Effect)
			})
		if !tolerated {
			return false
		}
	}
	return true
}

// matchesNames judges the required affinity by metadata.name. Other requirements are taken as met.
func matchesNames(pod *corev1.Pod, node *corev1.Node) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil ||
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && !slices.Contains(r.Values, node.Name)
		})
	})
}

// onNode selects the pods of a node.
func onNode(name string) string { return fields.OneTermEqualSelector("spec.nodeName", name).String() }
