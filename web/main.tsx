// The page's entry.
import { render } from 'preact';

render(<p>Weir</p>, document.getElementById('app')!);
